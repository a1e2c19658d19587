# Functions for `scripts/test --seeds` (bash): repeats the property tests with fresh seeds. Needs scripts/lib/step.sh.
#
# All other runs take the seed that .cargo/config.toml names, and the Node tests their own, so that a run fails only because of a change.

# Prints the file and the name of each property test: the functions within `proptest! { … }`.
property_tests() {
  grep -rlZ --include='*.rs' 'proptest! *{' src tests | sort -z | xargs -0 awk '
    FNR == 1 { closing = "" }
    /^ *([a-z]+::)*proptest! *\{$/ { closing = $0; sub(/[^ ].*/, "}", closing); next }
    $0 == closing { closing = ""; next }
    closing && /^ *#\[test\]$/ { test = 1; next }
    test && /^ *fn [a-z0-9_]+\(/ { name = $2; sub(/\(.*/, "", name); print FILENAME, name; test = 0 }'
}

# Prints the targets of cargo that hold these files, each once: --lib, or --test with the name of a file or folder of tests/.
targets_of() {
  sed -E 's|^src/.*|--lib|; s|^tests/([a-z_]+).*|--test=\1|' | sort -u
}

# Repeats the property tests with this number of fresh seeds. A step is named after its seed, so that the seed of a failure is printed at the end.
with_seeds() {
  local count=$1 time seed passed tests names targets
  tests=$(property_tests)
  mapfile -t names < <(cut -d ' ' -f 2 <<<"$tests")
  mapfile -t targets < <(cut -d ' ' -f 1 <<<"$tests" | targets_of)
  compile 'compiling the property tests' '2 minutes' cargo test --no-run "${targets[@]}"
  for ((time = 1; time <= count; time++)); do
    seed=$SRANDOM
    PROPTEST_RNG_SEED=$seed step "${#names[@]} property tests, $time of $count: PROPTEST_RNG_SEED=$seed" \
      scripts/with-hypervisor --timeout "$RUST_LIMIT" -- cargo test --quiet --no-fail-fast "${targets[@]}" -- "${names[@]}"
    # A name that cargo does not find is otherwise a test that is left out silently.
    passed=$(grep -oE '[0-9]+ (passed|failed);' "$work/step" | awk '{ total += $1 } END { print total + 0 }')
    ((passed >= ${#names[@]})) || failed+=("${#names[@]} property tests were found in the sources, and $passed ran")
    HYPERLIGHT_MCP_SEED=$seed step "the Node tests of interleavings, $time of $count: HYPERLIGHT_MCP_SEED=$seed" \
      scripts/with-hypervisor --timeout "$NODE_FILE_LIMIT" -- node --test --test-reporter=spec __test__/serve-interleavings.test.mjs
  done
}
