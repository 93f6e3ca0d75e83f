#!/usr/bin/env bash
# How long the compile of SmolLM2-135M takes, and what part of it is the vendor's.
#
#   bench/compile.sh [runs]      (after ./quickstart)
#
# Prints, for each run and as the median: wall seconds from GGUF to package, the
# seconds inside the vendor's graphFinalize, the rest, the peak resident memory
# of all processes, and context bytes over weight bytes. The limit that it is
# measured against: 1.5 x the vendor's part + 10 s, 2 GB, 1.06.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-3}
program=build/release/bin/spillway
model=.deps/model/SmolLM2-135M-Instruct.Q4_1.gguf
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for ((i = 1; i <= runs; i++)); do
  "$program" compile "$model" --soc SM8750 --mode hybrid --prefill-ar-len 32 --context-len 128 \
    --slc-allocator -o "$out/package" --htp on --json --quiet >"$out/report_$i.json"
done
python3 - "$out"/report_*.json <<'PY'
import json, statistics, sys
rows = []
for path in sys.argv[1:]:
    r = json.load(open(path))
    context = sum(s["context_bytes"] for s in r["shards"])
    weights = sum(s["weight_bytes"] for s in r["shards"])
    rows.append([r["wall_s"], r["vendor_finalize_s"], r["wall_s"] - r["vendor_finalize_s"],
                 1.5 * r["vendor_finalize_s"] + 10, r["peak_rss_bytes"] / 1e9, context / weights])
head = ["wall s", "finalise s", "rest s", "limit s", "peak GB", "context/weights"]
print("".join(f"{h:>17}" for h in head))
for row in rows:
    print("".join(f"{v:17.3f}" for v in row))
print("".join(f"{statistics.median(c):17.3f}" for c in zip(*rows)), " median")
PY
