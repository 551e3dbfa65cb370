"""The report of a replay: the same numbers in a table, as JSON and on a page, whatever the names in it are."""

from __future__ import annotations

import io
import json
import sys
import threading
from dataclasses import replace
from typing import Any

from trireme.tools.replay.comparison import Comparison, Verdict
from trireme.tools.replay.html_report import html_report
from trireme.tools.replay.options import ReplayOptions
from trireme.tools.replay.report import ReportHeading, changes_text, report_document
from trireme.tools.replay.results import Results, Timing, percentiles_ms
from trireme.tools.replay.run import Replayed
from trireme.tools.replay.text_report import text_report

HEADING = ReportHeading("a.rec", "http://host:1", "the recorded answers", "inside the recorded server", "at its pace")


def filled() -> Results:
    results = Results(most_examples=2)
    for number in range(1, 5):
        results.add(number, "m", "", Comparison(Verdict.SAME), Timing(number * 10**6, 2 * number * 10**6), 0)
    results.add(5, "m", "<id>", Comparison(Verdict.DIFFERS, ("1 became <b>2</b>",)), Timing(10**6, 10**6), 20_000_000)
    results.add(6, "m", "", Comparison(Verdict.FAILS, ("boom",)), Timing(10**6, 10**9), None)
    results.add(7, "m", "", Comparison(Verdict.FAILS, ("boom",)), None, None)
    results.add(8, "n", "", Comparison(Verdict.UNPLAYABLE, ("too large",)), None, None)
    return results


def document(reason: str = "", is_gone: bool = False, results: Results | None = None) -> dict[str, Any]:
    found = report_document(HEADING, Replayed(results or filled(), 9, 2.0, reason, is_gone, ("a warning",)))
    return dict(json.loads(json.dumps(found)))


def test_counts_latencies_and_examples() -> None:
    found = document()
    assert (found["requests"], found["sent"], found["requests_per_second"]) == (9, 7, 3.5)
    assert {name: count for name, count in found["verdicts"].items() if count} == {
        "same": 4,
        "differs": 1,
        "fails now": 2,
        "not replayable": 1,
    }
    assert found["late"] == {"count": 1, "max_ms": 20.0}
    latency = found["models"]["m"]["latency_ms"]
    assert (latency["before"]["p50"], latency["now"]["p50"], latency["now"]["max"]) == (2.0, 4.0, 8.0)
    assert found["models"]["n"]["latency_ms"] == {"before": None, "now": None}
    assert found["errors"] == [{"model": "m", "error": "boom", "count": 2}]
    assert [example["request"] for example in found["examples"]] == [5, 6]


def test_requests_that_were_not_sent_are_no_success_and_leave_room_for_what_differs() -> None:
    results = Results(most_examples=2)
    for number in (1, 2, 3):
        results.add(number, "m", "", Comparison(Verdict.UNPLAYABLE, ("too large",)), None, None)
    results.add(4, "m", "", Comparison(Verdict.SAME), None, None)
    replayed = Replayed(results, 4, 1.0, "", False, ())
    assert not replayed.is_success
    found = document(results=results)
    assert [example["request"] for example in found["examples"]] == [1, 2]
    assert "3 requests could not be sent." in text_report(found, io.StringIO())
    for number in (5, 6, 7):
        results.add(number, "m", "", Comparison(Verdict.RECOVERED), None, None)
        results.add(number + 10, "m", "", Comparison(Verdict.DIFFERS), None, None)
    assert [example.number for example in results.examples] == [15, 16]


def test_what_is_asked_in_place_of_what_is_recorded_is_in_every_report() -> None:
    asked = changes_text(ReplayOptions(renamed={"m": "<m2>"}, version="3"))
    assert asked == "m as <m2>, version 3"
    found = report_document(replace(HEADING, changes=asked), Replayed(filled(), 9, 2.0, "", False, ()))
    assert found["asked_instead"] == asked
    assert text_report(found, io.StringIO()).startswith("a.rec -> http://host:1 (m as <m2>, version 3), compared with")
    assert "<b>http://host:1</b> (m as &lt;m2&gt;, version 3) in" in html_report(found)
    assert text_report(document(), io.StringIO()).startswith("a.rec -> http://host:1, compared with")


def test_it_is_counted_while_threads_add() -> None:
    results, is_over = Results(0), threading.Event()

    def add() -> None:
        for number in range(20_000):
            results.add(number, f"m{number}", "", Comparison(Verdict.DIFFERS), None, None)
        is_over.set()

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=add)
    try:
        thread.start()
        while not is_over.is_set():
            assert results.bad_count <= 20_000
    finally:
        thread.join()
        sys.setswitchinterval(interval_s)
    assert results.bad_count == 20_000


def test_messages_that_are_all_different_are_counted_together_in_the_end() -> None:
    results = Results(0)
    for number in range(1500):
        results.add(number, "m", "", Comparison(Verdict.FAILS, (f"id {number}",)), None, None)
    results.add(0, "m", "", Comparison(Verdict.FAILS, ("id 3",)), None, None)
    assert results.error_counts.most_common(2) == [(("", "other errors"), 500), (("m", "id 3"), 2)]
    assert len(results.error_counts) == 1001


def test_percentiles() -> None:
    assert percentiles_ms([]) is None
    found = percentiles_ms([number * 10**6 for number in range(1, 101)])
    assert found is not None
    assert found == {"mean": 50.5, "p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}


def test_the_table_says_what_matters_last() -> None:
    text = text_report(document(), io.StringIO())
    assert text.endswith(
        "1 request was sent late, by 20 ms at most: the pace could not be kept\n"
        "1 request could not be sent.\n3 answers differ or fail."
    )
    assert "warning: a warning" in text
    assert "request 5, m (id <id>): differs\n    1 became <b>2</b>" in text
    assert "| m     | 7        | 4    | 1       | 2         | 0              |" in text
    assert text_report(document("Ctrl+C"), io.StringIO()).count("INCOMPLETE: Ctrl+C") == 1


def test_the_page_takes_no_name_for_markup() -> None:
    page = html_report(document())
    assert "1 became &lt;b&gt;2&lt;/b&gt;" in page
    assert "(id &lt;id&gt;)" in page
    assert page.count("<rect") == 8  # three percentiles and the maximum before and now, of the one model that has any
    assert '<p class="bad">3 answers differ or fail.</p>' in page
    assert "<script" not in page


def test_names_and_messages_of_others_do_nothing_to_a_terminal() -> None:
    results = Results(5)
    name = "\x1b]0;title\x07" + "m" * 5000
    told = Comparison(Verdict.FAILS, ("bad\x1b[2J\nsecond line " + "e" * 5000,))
    results.add(1, name, "\x1b[31m" + "i" * 5000, told, Timing(1, 1), None)
    results.add(2, name, "", Comparison(Verdict.SAME), Timing(1, 1), None)
    found = report_document(HEADING, Replayed(results, 2, 2.0, "end\x1b", False, ("warned\x1b" + "w" * 5000,)))
    for text in (text_report(found, io.StringIO()), html_report(found)):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\\x1b]0;title\\x07mmm" in text
        assert "\\x1b[31miii" in text
        assert "bad\\x1b[2J\n" in text
        assert max(map(len, text.split("\n"))) < 1500


def test_an_early_end_is_no_success() -> None:
    results = Results(5)
    results.add(1, "m", "", Comparison(Verdict.SAME), Timing(1, 1), None)
    for text in (
        html_report(document("it went away", True, results)),
        text_report(document("it went away", True, results), io.StringIO()),
    ):
        assert "it went away" in text
        assert "No answer differs" not in text
    assert "No answer differs" in html_report(document(results=results))


def test_what_was_not_answered_or_not_compared_is_told_and_is_no_praise() -> None:
    results = Results(5)
    results.add(1, "m", "", Comparison(Verdict.UNCOMPARED), Timing(None, 1), None)
    results.add(2, "m", "", Comparison(Verdict.UNANSWERED, ("refused",)), None, None)
    for text in (html_report(document(results=results)), text_report(document(results=results), io.StringIO())):
        assert "1 request was not answered." in text
        assert "1 answer had none to be compared with." in text
        assert "No answer differs" not in text
    results.add(3, "m", "", Comparison(Verdict.SAME), Timing(1, 1), None)
    assert "No answer differs." in text_report(document(results=results), io.StringIO())


def test_the_page_has_what_the_table_has() -> None:
    results = Results(5)
    timing = Timing(5 * 10**6, 6 * 10**6, first_before_ns=10**6, first_now_ns=2 * 10**6)
    results.add(1, "m", "", Comparison(Verdict.SAME), timing, None)
    page = html_report(document(results=results))
    assert "<th>Same</th><th>Differs</th><th>Fails now</th></tr>" in page
    assert "<h4>answer</h4>" in page
    assert "<h4>first response</h4>" in page
    assert page.count("max before") == page.count("max now") == 2
    assert "2.00 ms" in page


def test_one_is_no_plural() -> None:
    results = Results(5)
    results.add(1, "m", "", Comparison(Verdict.DIFFERS, ("1 became 2",)), Timing(1, 1), None)
    assert "1 answer differs or fails." in text_report(document(results=results), io.StringIO())
