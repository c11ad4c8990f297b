"""The document of the FRB-node protocol as its receivers take it: every rule that they assert, from the
protocol's description and not from the C. A receiver that refuses one ends for all its senders, so that what
passes here and what our programs accept must be the same."""
import math
import re

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
REAL = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\Z")
INT64 = range(-2 ** 63, 2 ** 63)

# One number, a list, or either; of which type. Everything is required, and there is nothing else.
ONE, LIST, EITHER = "one", "list", "either"
KEYS = {
    "version": (ONE, int), "zone_nfreq": (LIST, int), "zone_freq_edges": (LIST, float),
    "freq_channels": (LIST, int), "beamset": (ONE, int), "beam_ids": (LIST, int),
    "beam_positions_x": (LIST, float), "beam_positions_y": (LIST, float), "unix_ns_at_seq_0": (ONE, int),
    "dt_ns_per_seq": (ONE, int), "seq_per_frb_time_sample": (ONE, int),
    "tel_origin_itrs_lat_deg": (ONE, float), "tel_origin_itrs_lon_deg": (ONE, float),
    "tel_grid_x_axis": (LIST, float), "tel_grid_y_axis": (LIST, float), "tel_dish_elev_axis": (LIST, float),
    "tel_dish_vert_axis": (LIST, float), "tel_dish_coelev_deg": (ONE, float),
    "tel_dish_separation_x_m": (ONE, float), "tel_dish_separation_y_m": (ONE, float),
    "noise_variance": (EITHER, float)
}


class Refused(Exception):
    """args: the key (or "text"), what is wrong with it."""


def number(key, event, kind):
    if event.anchor or event.tag or event.style:
        raise Refused(key, "no plain number")
    if not (WHOLE if kind is int else REAL).match(event.value):
        raise Refused(key, f"{event.value!r} is not a number")
    value = kind(event.value)
    if value not in INT64 if kind is int else not math.isfinite(value):
        raise Refused(key, "too large")
    return value


def pairs(events):
    """(key, event or list of events) of the one mapping that there is."""
    kinds = [type(e).__name__ for e in events[:3]]
    if kinds != ["StreamStartEvent", "DocumentStartEvent", "MappingStartEvent"] or events[2].anchor or \
            events[2].tag:
        raise Refused("text", "not a mapping")
    i = 3
    while not isinstance(events[i], yaml.MappingEndEvent):
        if not isinstance(events[i], yaml.ScalarEvent) or events[i].anchor or events[i].tag:
            raise Refused("text", "a key is not a text")
        key, value = events[i].value, events[i + 1]
        i += 2
        if isinstance(value, yaml.SequenceStartEvent):
            if value.anchor or value.tag:
                raise Refused(key, "anchors and tags")
            value = []
            while isinstance(events[i], yaml.ScalarEvent):
                value.append(events[i])
                i += 1
            if not isinstance(events[i], yaml.SequenceEndEvent):
                raise Refused(key, "more than numbers in its list")
            i += 1
        elif not isinstance(value, yaml.ScalarEvent):
            raise Refused(key, "neither a number nor a list")
        yield key, value
    if [type(e).__name__ for e in events[i + 1:]] != ["DocumentEndEvent", "StreamEndEvent"]:
        raise Refused("text", "more than one document")


def parse(text, loader=LOADER):
    """bytes without the final 0 -> dict. Raises Refused."""
    try:
        events = list(yaml.parse(text, Loader=loader))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise Refused("text", str(error)) from error
    d = {}
    for key, value in pairs(events):
        if key not in KEYS or key in d:
            raise Refused(key, "unknown, or there twice")
        form, kind = KEYS[key]
        if isinstance(value, list) != (form == LIST) and form != EITHER:
            raise Refused(key, f"expected {form}")
        d[key] = [number(key, v, kind)
                  for v in value] if isinstance(value, list) else number(key, value, kind)
    if missing := set(KEYS) - set(d):
        raise Refused(min(missing), "missing")
    return d


def require(key, good, why=""):
    if not good:
        raise Refused(key, why)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def check(d):
    """The rules on the values."""
    require("version", d["version"] == 2)
    zones, edges = d["zone_nfreq"], d["zone_freq_edges"]
    require("zone_nfreq", zones and min(zones) > 0)
    require("zone_freq_edges", len(edges) == len(zones) + 1 and edges[0] > 0)
    require("zone_freq_edges", all(a < b for a, b in zip(edges, edges[1:])))
    for key in ("freq_channels", "beam_ids"):
        require(key, d[key] and len(set(d[key])) == len(d[key]), "empty, or one twice")
    require("freq_channels", min(d["freq_channels"]) >= 0 and max(d["freq_channels"]) < sum(zones))
    x, y = d["beam_positions_x"], d["beam_positions_y"]
    require("beam_positions_x", len(x) == len(y) == len(d["beam_ids"]))
    require("beam_positions_x", all(a * a + b * b <= 1 for a, b in zip(x, y)), "outside the unit circle")
    for key in ("unix_ns_at_seq_0", "dt_ns_per_seq", "seq_per_frb_time_sample", "tel_dish_separation_x_m",
                "tel_dish_separation_y_m"):
        require(key, d[key] > 0)
    for key, low, high in (("tel_origin_itrs_lat_deg", -90, 90), ("tel_origin_itrs_lon_deg", -180, 360),
                           ("tel_dish_coelev_deg", -90, 90)):
        require(key, low <= d[key] <= high)
    for a, b in (("tel_grid_x_axis", "tel_grid_y_axis"), ("tel_dish_elev_axis", "tel_dish_vert_axis")):
        for key in (a, b):
            require(key, len(d[key]) == 3 and abs(dot(d[key], d[key]) - 1) <= 1e-6, "no unit vector")
        require(a, abs(dot(d[a], d[b])) <= 1e-6, "not orthogonal")
    noise = d["noise_variance"]
    require("noise_variance", not isinstance(noise, list) or len(noise) == len(zones))
    require("noise_variance", all(v > 0 for v in (noise if isinstance(noise, list) else [noise])))


def read(text, loader=LOADER):
    """bytes without the final 0 -> the document, or Refused."""
    d = parse(text, loader)
    check(d)
    return d
