#!/usr/bin/env bash
# What quantisation does to SmolLM2-135M: perplexity, logits and greedy tokens of float and
# of every recipe.
#
#   bench/quality.sh [recipe or JSON file]...      (after ./quickstart; default: all built-in
#                                                   recipes)
#
# WINDOWS (20), CONTEXT (512), TEXT (../shared/data/wikitext2_test.txt), GOLDEN (the folder
# with prompt.json; ../shared/data/smollm2), PROGRAM and KEEP (a folder for the packages; one
# that is there already is not compiled again) may be set. llama.cpp's protocol: windows after
# each other, second half scored.
#
# Prints for each: perplexity, its ratio to float, SQNR of the logits in dB, KL divergence,
# share of positions with the same best token (those three against the float model after the
# same prefix), and how many of the 32 first greedy tokens are the golden ones.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${PROGRAM:-build/release/bin/spillway}
model=.deps/model/SmolLM2-135M-Instruct.Q4_1.gguf
text=${TEXT:-../shared/data/wikitext2_test.txt}
golden=${GOLDEN:-../shared/data/smollm2}
context=${CONTEXT:-512}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages=${KEEP:-$work}
mkdir -p "$packages"
recipes=("$@")
if [ ${#recipes[@]} -eq 0 ]; then
  mapfile -t recipes < <("$program" recipes --json |
    python3 -c 'import json, sys; [print(r["name"]) for r in json.load(sys.stdin)["recipes"]]')
fi
made=()
for recipe in "${recipes[@]}"; do
  package=$packages/$(basename "$recipe" .json)
  made+=("$package")
  [ -d "$package" ] || "$program" compile "$model" --htp off --recipe "$recipe" \
    --context-len "$context" -o "$package" --quiet >/dev/null
done
"$program" eval "${made[@]}" --float "$model" --text "$text" --context "$context" \
  --windows "${WINDOWS:-20}" --greedy 32 --json --quiet >"$work/result.json"
python3 - "$work/result.json" "$golden/prompt.json" <<'PY'
import json, sys
found = json.load(open(sys.argv[1]))
golden = json.load(open(sys.argv[2]))
assert found["prompt_tokens"] == golden["prompt_ids"], "not the golden prompt"
def same(tokens):
    count = 0
    for a, b in zip(tokens, golden["greedy_ids"]):
        if a != b:
            break
        count += 1
    return count
def decimal(value, digits):
    return "" if value is None else f"{value:.{digits}f}"
print(f"context {found['context']}, {found['results'][0]['windows']} windows, "
      f"{found['results'][0]['scored_tokens']} tokens scored\n")
print("| | perplexity | over float | logits SQNR dB | KL | top-1 % | greedy of 32 |")
print("|---|---|---|---|---|---|---|")
for r in found["results"]:
    top = r.get("top1_agreement")
    print(f"| {r['what']} | {r['perplexity']:.4f} | {r['ratio']:.4f} | "
          f"{decimal(r.get('logits_sqnr_db'), 1)} | {decimal(r.get('kl_divergence'), 4)} | "
          f"{decimal(top and 100 * top, 1)} | {same(r['greedy_tokens'])} |")
PY
