"""New values of parameters of stages in Python, from a sample on."""

import numpy as np
import pytest

import beamring as br
from conftest import HEAD, program, same
from test_node import started

SCRIPT = '''
import beamring, numpy as np

class Level(beamring.Stage):
    """the same number everywhere"""
    updates = ("level", "shape")
    level: float = beamring.param(1.0, "the number", min=0, max=100)
    shape: list[float] = beamring.param([1.0, 1.0, 1.0, 1.0], "of the channels")
    fixed: int = beamring.param(3, "another one")
    told = []

    def configure(self, field):
        if len(self.shape) != 4:
            raise ValueError(f"shape: {len(self.shape)} numbers; expected 4")
        return field.like("f32", ("time", "freq"), scale=1)

    def process(self, field, out):
        out.data[...] = self.level * np.array(self.shape)

    def update(self, names, sample):
        Level.told.append((names, sample))
        self.note(f"{names} from {sample} on")
'''
TEXT = HEAD + """
UPDATES
pipeline:
  - {stage: simulate, out: field, samples: 16384, frame_samples: 1024, seed: 3}
  - {stage: python, name: one, script: mine.py, in: field, out: level}
  - {stage: record, in: level, prefix: level, file_bytes: 65536}
"""
TWO = """updates:
  - {id: first, at: {sample: 3000}, stages: {one: {level: 5}}}
  - {id: second, at: {sample: 8192}, stages: {one: {level: 7, shape: [1, 2, 3, 4]}}}
"""


@pytest.fixture(autouse=True)
def script():
    with open("mine.py", "w") as file:
        file.write(SCRIPT)


def test_updates_of_the_file_hold_from_their_sample_on():
    with open("p.yaml", "w") as file:
        file.write(TEXT.replace("UPDATES", TWO))
    result = br.Pipeline("p.yaml").run(collect=["level"])
    want = np.ones((16384, 4), np.float32)
    want[3072:] = 5  # the first frame that begins at the sample or after it
    want[8192:] = 7 * np.arange(1, 5)
    assert same(result["level"].data, want)
    told = [m.text for m in result.messages if " from " in m.text and m.stage == "one"]
    assert told == ["['level'] from 3072 on", "['level', 'shape'] from 8192 on"], told
    recorded = br.open("level_*.dada")
    assert [(u["stage"], u["id"]) for u in recorded.updates] == [("one", "first"), ("one", "second")]
    assert same(recorded.data, want)
    done = program("run", "p.yaml", "--set", "record.overwrite=true")
    assert done.returncode == 0, done.stderr
    assert same(br.open("level_*.dada").data, want)


@pytest.mark.parametrize(
    "values, words",
    [
        ("level: 1000", "level: '1000' is out of range"),
        ("shape: [1, 2]", "shape: 2 numbers; expected 4"),
        ("fixed: 4", "fixed"),
        ("beans: 4", "'beans' is not a parameter of it"),
    ],
)
def test_values_that_are_refused(values, words):
    update = f"updates: [{{at: {{sample: 3000}}, stages: {{one: {{{values}}}}}}}]"
    with pytest.raises(br.ConfigError, match=words):
        br.Pipeline(TEXT.replace("UPDATES", update)).check()


def test_an_update_of_a_node(tmp_path):
    text = TEXT.replace("UPDATES", "").replace("samples: 16384", "samples: 1000000000000, realtime: true")
    (tmp_path / "node.yaml").write_text(text)
    with started(tmp_path) as (url, _):
        node = br.Node(url)
        next(node.tap("level", timeout_s=30))
        answer, ahead = None, 200000  # half a second; more on a machine that is busy
        while answer is None:
            at = node.sample + ahead
            try:
                answer = node.update(one={"level": 5}, at=at, id="noon")
            except br.NodeError as error:
                assert error.code == 409 and ahead < 10**8, error
                ahead *= 2
        assert answer["sample"] == at, answer
        with pytest.raises(br.NodeError, match="expected 4"):
            node.update(one={"shape": [1, 2]})
        with pytest.raises(br.NodeError, match="fixed"):
            node.update(one={"fixed": 4})
        begin = -(-at // 1024) * 1024
        frame = None
        while frame is None or frame.first < begin:
            frame = next(node.tap("level", timeout_s=30))
        assert (frame.data == 5).all()
        node.stop()
    level = br.open(str(tmp_path / "level_*.dada"))
    n = level.shape[0]
    assert n > begin
    values = level.data[:, 0]
    assert (values[: begin - level.first] == 1).all() and (values[begin - level.first :] == 5).all()
