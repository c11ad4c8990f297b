"""`beamring bench`: what it refuses, and kernels on the GPU with samples missing."""
import harness


def test_arguments():
    """Wrong arguments end with status 2 and say what was expected, before anything is measured."""
    for line, words in (
        ("--only", ["--only", "names of parts"]),
        ("--only quantise", ["there is no part 'quantise'", "did you mean 'quantize'?", "upchannelize"]),
        ("--only queue,", ["there is no part ''"]),
        ("--cpu --gpu", ["at most one of them"]),
        ("--missing", ["--missing ''", "from 1 to 1000000"]),
        ("--missing 0", ["--missing '0'", "from 1 to 1000000"]),
        ("--missing 1000 --cpu", ["--missing", "on the GPU"]),
        ("--missing 1000 --only queue", ["--missing", "'queue' is none of them"]),
        ("--code", ["--code ''", "expected sm_80"]),
        ("--code sm_90a", ["--code 'sm_90a'", "expected sm_80"]),
        ("--code sm_80 --cpu", ["--code", "on the GPU"]),
    ):
        arguments = line.split()
        run = harness.beamring("bench", *arguments)
        assert run.status == 2 and run.out == "", (arguments, run)
        assert all(word in run.err for word in words), (arguments, run.err)


def test_code():
    """Portable kernels are measured on any device, and nothing is required of them."""
    run = harness.beamring("bench", "--code", "sm_80", "--strict", "--only", "quantize,upchannelize")
    assert run.status == 0 and "at most" not in run.out, run
    if harness.has_device("cuda:0"):
        assert "\ncode: sm_" in run.out and "the kernels for any GPU\n" in run.out, run
        assert "from sm_80 on" in run.out and "\nquantize to 4" in run.out, run
    else:
        assert run.out.startswith("no GPU: skipped"), run


def test_missing():
    """Kernels take data with gaps, and nothing is required of it."""
    run = harness.beamring("bench", "--missing", "1000", "--strict", "--only", "quantize,baseband")
    assert run.status == 0 and "at most" not in run.out, run
    if harness.has_device("cuda:0"):
        assert "one of 1000 samples is missing" in run.out and "\nquantize to 4" in run.out and \
            "\nbaseband" in run.out, run
    else:
        assert run.out.startswith("no GPU: skipped"), run


if __name__ == "__main__":
    harness.main([test_arguments, test_code, test_missing])
