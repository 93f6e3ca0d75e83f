#!/usr/bin/env bash
# A text far past the context: perplexity in integers and in float with the same attention sink,
# without one, and 600 tokens that the model writes itself.
#
#   bench/past_context.sh [SPILLWAY]
#
# MODEL, TEXT: the GGUF file and a text; TOKENS of it (2000). KEEP=folder keeps package and text.
set -euo pipefail
cd "$(dirname "$0")/.."

spillway=${1:-build/release/bin/spillway}
model=${MODEL:-.deps/model/SmolLM2-135M-Instruct.Q4_1.gguf}
text=${TEXT:-../shared/data/wikitext2_test.txt}
folder=${KEEP:-$(mktemp -d)}
[ -n "${KEEP:-}" ] || trap 'rm -rf "$folder"' EXIT

echo "## compile"
"$spillway" compile "$model" -o "$folder/pkg" --htp off --context-len 128 --attention-sink 4,32 \
  --quiet | grep evictor
echo "## ${TOKENS:-2000} tokens of text"
"$spillway" eval "$folder/pkg" --float "$model" --text "$text" --attention-sink 4,32 \
  --tokens "${TOKENS:-2000}" --quiet

echo "## 600 tokens of its own"
"$spillway" run "$folder/pkg" --ignore-eos --max-new-tokens 600 --temperature 0.7 --stats --quiet \
  --prompt "Tell me a long story about a lighthouse and the people who keep it." \
  > "$folder/story.txt"
iconv -f UTF-8 -t UTF-8 "$folder/story.txt" > /dev/null && echo "valid UTF-8"
tr -s '[:space:]' '\n' < "$folder/story.txt" | awk '
  { word[NR] = $0 }
  END {
    for (i = 1; i + 3 <= NR; ++i) {
      gram = word[i] " " word[i + 1] " " word[i + 2] " " word[i + 3]
      if (!(gram in seen)) { seen[gram] = 1; ++different }
    }
    printf "%d words, %.1f%% of the runs of four words are different\n", NR,
           100 * different / (NR - 3)
  }'
echo "its perplexity in float:"
"$spillway" eval "$model" --text "$folder/story.txt" --context 128 --attention-sink 4,32 --quiet
