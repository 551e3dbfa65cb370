"""The command line of `trireme convert`, with the flags of FasterTransformer's own converter."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from trireme.config.options.flag_parser import FlagParser, positive
from trireme.llm.models.fastertransformer.config_file import DATA_TYPES

PROGRAM = "trireme convert"
TO_FASTERTRANSFORMER = "hf-to-ft"
TO_HUGGING_FACE = "ft-to-hf"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for, as `direction` and the flags by their names; SystemExit where argparse has said it all."""
    parser = FlagParser(prog=PROGRAM, description="Turns a checkpoint into another layout.")
    directions = parser.add_subparsers(dest="direction", metavar="DIRECTION", required=True)
    there = directions.add_parser(
        TO_FASTERTRANSFORMER, help="a Hugging Face folder of GPT-NeoX into a FasterTransformer checkpoint"
    )
    add = there.add_argument
    add("-saved_dir", "-o", required=True, metavar="DIR", help="the checkpoint is written to DIR/<ranks>-gpu")
    add("-in_file", "-i", required=True, metavar="FOLDER", help="the Hugging Face folder")
    add("-infer_gpu_num", "-i_g", required=True, type=positive, metavar="RANKS", help="ranks to part tensors among")
    add("-processes", "-p", type=positive, default=4, metavar="N", help="files written at a time (default: 4)")
    add("-weight_data_type", default="fp32", choices=list(DATA_TYPES), help="the type of weights (default: fp32)")
    add("-model_name", "-m_n", required=True, metavar="NAME", help="the name that config.ini gives the model")
    back = directions.add_parser(TO_HUGGING_FACE, help="the other way round")
    back.add_argument("-saved_dir", "-o", required=True, metavar="DIR", help="the Hugging Face folder to write")
    back.add_argument("-in_file", "-i", required=True, metavar="FOLDER", help="the folder that has config.ini")
    return parser.parse_args(arguments)
