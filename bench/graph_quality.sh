#!/usr/bin/env bash
# How good the graphs are, by the vendor's own cost model.
#
#   bench/graph_quality.sh [MODEL.gguf]      (after ./quickstart)
#
# Compiles the model (default: SmolLM2-135M) hybrid AR-32, context 128, with shared
# weights, for the two SoCs that have a cost model, at each optimisation level, and beside
# it a graph pair with the weight products alone (bench/weight_floor.cc), which is what no
# decoder can be below. Prints microseconds of a call, their ratio to that floor, DDR
# bytes read a decode step over weight bytes, and context bytes over weight bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${SPILLWAY_BUILD:-build/release}
model=${1:-.deps/model/SmolLM2-135M-Instruct.Q4_1.gguf}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for soc in SA8255 SA8797; do
  for level in default 1 2 3; do
    flags=()
    [[ $level == default ]] || flags=(--optimization-level "$level" --decode-optimization-level "$level")
    "$build/bin/spillway" compile "$model" --soc $soc --mode hybrid --prefill-ar-len 32 \
      --context-len 128 -o "$out/package" --htp on --no-cache --json --quiet "${flags[@]}" \
      >"$out/$soc.$level.json"
  done
  "$build/bin/weight_floor" "$out/package" $soc 3 >"$out/$soc.floor.json"
done
python3 - "$out" <<'PY'
import json, sys
out = sys.argv[1]
head = ["SoC", "level", "prefill us", "/ floor", "decode us", "/ floor", "read/weights",
        "context/weights", "finalise s"]
print("".join(f"{h:>16}" for h in head))
for soc in ["SA8255", "SA8797"]:
    floor = json.load(open(f"{out}/{soc}.floor.json"))
    f = [floor[g]["estimate_us"] for g in ["prefill_forward", "kv_forward"]]
    w = floor["weight_bytes"]
    def row(name, p, d, read, context, finalise):
        cells = [soc, name, f"{p:.0f}", f"{p / f[0]:.3f}", f"{d:.0f}", f"{d / f[1]:.3f}",
                 f"{read / w:.3f}", f"{context / w:.3f}", finalise]
        print("".join(f"{c:>16}" for c in cells))
    row("floor (3)", f[0], f[1], floor["kv_forward"]["read_bytes"], floor["context_bytes"], "")
    for level in ["default", "1", "2", "3"]:
        r = json.load(open(f"{out}/{soc}.{level}.json"))
        us = {g["name"]: g["estimate_us"] for s in r["shards"] for g in s["graphs"]}
        row(level, us["prefill_forward"], us["kv_forward"], r["ddr"]["kv_forward"]["read_bytes"],
            sum(s["context_bytes"] for s in r["shards"]), f"{r['vendor_finalize_s']:.1f}")
PY
