"""Compiled models over the NeuronCores of AWS Inferentia and Trainium, or over the CPU's cores where there are none."""
