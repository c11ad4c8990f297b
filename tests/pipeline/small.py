"""The small telescope that the end-to-end tests share: 12 dishes, irregularly placed on an 8 x 12 grid, 5
coarse channels."""
import glob
import os

import harness

DISHES = [[0, 0], [0, 4], [0, 11], [2, 1], [2, 7], [3, 3], [4, 0], [4, 9], [5, 5], [6, 2], [7, 6], [7, 11]]
SPACING = (8.5, 6.3)
TELESCOPE = f"""
telescope:
  name: small
  grid: {{m: 8, n: 12}}
  spacing_m: {{m: {SPACING[0]}, n: {SPACING[1]}}}
  dishes: {DISHES}
  latitude_deg: 49.3
  longitude_deg: -119.6
"""
STREAM = """
stream:
  freq_mhz: {first: 400, step: 0.1953125, count: 5}
  sample_ns: 5120
  epoch_ns: 1700000000000000000
"""


def record_field(directory, samples=6000, missing="[{first: 1000, count: 37}, {first: 3001, count: 700}]",
                 sample0=0):
    """Writes field*.dada with noise, one source and two holes; returns its path."""
    harness.run(directory, TELESCOPE + STREAM + f"""
  sample0: {sample0}
pipeline:
  - stage: simulate
    samples: {samples}
    seed: 7
    missing: {missing}
    sources: [{{x_deg: 1.1, y_deg: -1.7, flux: 0.3}}]
    out: field
  - {{stage: record, in: field, directory: ., prefix: field}}
""", name="simulate.yaml")
    return one(directory, "field*.dada")


def one(directory, pattern):
    found = glob.glob(os.path.join(directory, pattern))
    assert len(found) == 1, f"{pattern}: {found}, of {os.listdir(directory)}"
    return found[0]


def at(sample, values, name="s", more=""):
    return f"{{at: {{sample: {sample}}}, stages: {{{name}: {{{values}}}}}{more}}}"
