# Functions for the programs of tests (bash): those of Rust are found, and those that have passed with the same inputs are kept. Needs
# scripts/lib/step.sh.

# Set to --all, every program runs.
repeat=${CI:+--all}
# Time limit of one program in seconds.
program_limit=300

# Prints the variables that cargo gives to the programs that it runs, except for those that the environment has already.
variables_of_cargo() {
  local line
  sed -n '/^\[env\]/,$ s/^\([A-Z_]*\) = "\(.*\)"$/\1=\2/p' .cargo/config.toml | while IFS= read -r line; do
    [[ -v ${line%%=*} ]] || echo "$line"
  done
}

# Stores the compiled programs of these tests in ${found[@]}: rust_programs [--lib] [--test NAME]… The names are within this repository, so they contain
# no spaces.
rust_programs() {
  local lines
  lines=$(cargo test --quiet --no-run --message-format=json "$@") || return
  mapfile -t found < <(sed -n 's/.*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1/p' <<<"$lines" | sed "s|^$PWD/||")
}

# Runs those of these commands that have not passed with the same inputs, in one step: programs NAME [PROGRAM…] -- COMMAND…
# PROGRAM runs them all, such as scripts/with-hypervisor. Each COMMAND is one line of words without spaces.
programs() {
  local name=$1 runner=() due
  shift
  while [[ $1 != -- ]]; do
    runner+=("$1")
    shift
  done
  shift
  # shellcheck disable=SC2086 # one word or none
  if node scripts/lib/kept.mjs due $repeat "${runner[*]}" "$work/keys" "$@" >"$work/decided"; then
    mapfile -t due < <(sed -n 's/^due //p' "$work/decided")
    grep '^kept ' "$work/decided" >>"$log"
  else
    due=("$@")
    : >"$work/keys"
  fi
  if ((${#due[@]} == 0)); then
    ended "$name" 0 "$SECONDS"
    return
  fi
  step "$name" "${runner[@]}" scripts/lib/each "$program_limit" "${due[@]}"
  [[ ! -s $work/keys ]] || node scripts/lib/kept.mjs record "$work/keys" "$work/step"
}
