#!/usr/bin/env bash
# What large models take to compile: random weights of a known shape.
#
#   bench/large_models.sh [1b|3b|8b]...      (after ./quickstart; default: 1b)
#
# 1b: Llama-3.2-1B's shape, 16a8w, hybrid AR-128, context 1024, 4 shards. Limit: 4
# minutes, 5 GB. 3b and 8b: 16a4w, as many shards as needed (8b: about 15 GB of free
# disk). Prints seconds, peak memory of all processes and the contexts' sizes.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${SPILLWAY_BUILD:-build/release}
(($#)) || set -- 1b
out=$(mktemp -d "${TMPDIR:-/tmp}/spillway-large.XXXXXX")
trap 'rm -rf "$out"' EXIT
for size in "$@"; do
  case $size in
    1b) shape=llama-3.2-1b type=q8_0 flags=(--recipe 16a8w --num-shards 4) ;;
    3b) shape=llama-3.2-3b type=q4_0 flags=(--recipe 16a4w --calib-tokens 256) ;;
    8b) shape=llama-3.1-8b type=q4_0 flags=(--recipe 16a4w --calib-tokens 128) ;;
    *) echo "unknown size $size: 1b, 3b or 8b" >&2; exit 2 ;;
  esac
  "$build/bin/make_model" $shape "$out/model.gguf" $type
  "$build/bin/spillway" compile "$out/model.gguf" --soc SM8750 --mode hybrid --prefill-ar-len 128 \
    --context-len 1024 -o "$out/package" --htp on --no-cache --json "${flags[@]}" \
    >"$out/report.json"
  python3 - "$out/report.json" "$shape" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
contexts = [s["context_bytes"] / 1e9 for s in r["shards"]]
print(f"{sys.argv[2]}: {r['wall_s']:.0f} s (calibrate {r['calibrate_s']:.0f}, quantise "
      f"{r['quantize_s']:.0f}, write {r['write_s']:.0f}, vendor {r['vendor_s']:.0f}, of it finalise "
      f"{r['vendor_finalize_s']:.0f}), peak {r['peak_rss_bytes'] / 1e9:.2f} GB, "
      f"{len(contexts)} contexts of {', '.join(f'{c:.2f}' for c in contexts)} GB")
PY
  rm -rf "$out/package" "$out/model.gguf"
done
