#!/usr/bin/env bash
# Compiles SmolLM2-135M with SLC and weight sharing on, checks the report against
# the limits that the project promises, and compares host and simulator: four
# tokens equal, logits within 30 dB, no operation beyond the allowed difference. In two
# shards, so that the hand-over between them is compared, too.
#   verify_real_model.sh SPILLWAY SOURCE_DIR
set -euo pipefail
spillway=$1
source_dir=$2
model=$source_dir/.deps/model/SmolLM2-135M-Instruct.Q4_1.gguf
libraries=${SPILLWAY_QNN_LIB_DIR:-$source_dir/.deps/qnn/onnxruntime_qnn}
[[ -f $model ]] || { echo "skipped: no model at $model"; exit 77; }
[[ -f $libraries/libQnnHtp.so ]] || { echo "skipped: no libQnnHtp.so in $libraries"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$spillway" compile "$model" --soc SM8750 --mode hybrid --prefill-ar-len 32 --context-len 128 \
  --slc-allocator --num-shards 2 --with-simulator --htp on --qnn-lib-dir "$libraries" -o "$folder/package" \
  --json --quiet >"$folder/report.json"
"$spillway" inspect "$folder/package/context_0.bin" --qnn-lib-dir "$libraries" --json --quiet \
  >"$folder/context.json"
"$spillway" verify "$folder/package" --raw --max-new-tokens 5 --min-sqnr 30 \
  --prompt "The capital of France is Paris, and the capital of Germany is" \
  --qnn-lib-dir "$libraries" --json --quiet >"$folder/verify.json"

python3 - "$folder" <<'PY'
import json, sys
load = lambda name: json.load(open(f"{sys.argv[1]}/{name}.json"))
report, context, verify = load("report"), load("context"), load("verify")
wrong = []
def check(what, holds):
    print(("ok   " if holds else "WRONG ") + what)
    if not holds:
        wrong.append(what)
check(f"graphs {report['graphs']}", report["graphs"] == ["prefill_forward", "kv_forward"])
check(f"peak memory {report['peak_rss_bytes'] / 1e9:.2f} GB, below 2", report["peak_rss_bytes"] < 2e9)
total = lambda field: sum(s[field] for s in report["shards"])
ratio = total("context_bytes") / total("weight_bytes")
check(f"{len(report['shards'])} shards", len(report["shards"]) == 2)
check(f"context over weights {ratio:.3f}, at most 1.06", ratio <= 1.06)
check("DDR traffic of both graphs", all(report["ddr"][g]["read_bytes"] > 1e8 for g in report["graphs"]))
check("the binary names both graphs and SoC 69",
      [g["name"] for g in context["graphs"]] == report["graphs"] and context["soc_model"] == 69)
check(f"{verify['equal_tokens']} tokens equal, at least 4", verify["equal_tokens"] >= 4)
check(f"logits SQNR {verify['logits_sqnr_db']:.1f} dB, at least 30", verify["logits_sqnr_db"] >= 30)
beyond = [o for o in verify["operations"] if o["max_lsb"] > o["allowed_lsb"]]
check(f"{len(verify['operations'])} operations, {len(beyond)} beyond the allowed LSB",
      len(verify["operations"]) > 50 and not beyond)
sys.exit(1 if wrong else 0)
PY
