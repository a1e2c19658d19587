# Completion of hyperlight-mcp for bash, also behind npx.

# Fills COMPREPLY with what the program proposes for the words from its name to the cursor.
_hyperlight_mcp_propose() { # _hyperlight_mcp_propose FIRST PROGRAM…
  local first=$1 words=() word glue='' line value cut
  shift
  # bash splits a word at "=" and ":"; the program wants it whole.
  for word in "${COMP_WORDS[@]:first:COMP_CWORD-first+1}"; do
    if [[ $word == [=:] ]] && ((${#words[@]} > 1)); then
      words[-1]+=$word glue=yes
    elif [[ $glue ]]; then
      words[-1]+=$word glue=''
    else
      words+=("$word")
    fi
  done
  # A word before the cursor stands here as it was typed, with its quotes.
  for ((word = 0; word < ${#words[@]}; word++)); do
    value=${words[word]}
    value=${value//[\"\'\\]/}
    words[word]=$value
  done
  # What is inserted replaces only the part behind the last "=" or ":".
  value=${words[-1]}
  cut=''
  [[ $value == *[=:]* ]] && cut=${value%"${value##*[=:]}"}
  COMPREPLY=()
  while IFS= read -r line; do
    value=${line%%$'\t'*}
    [[ $value ]] || continue
    printf -v value '%q' "${value#"$cut"}"
    COMPREPLY+=("$value")
  done < <("$@" complete hyperlight-mcp "${words[@]:1}" 2>/dev/null)
  if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == */ ]]; then compopt -o nospace; fi
  ((${#COMPREPLY[@]} > 0))
}

_hyperlight_mcp() {
  _hyperlight_mcp_propose 0 "${COMP_WORDS[0]}"
}

# Completes `npx [OPTIONS] hyperlight-mcp …`, and leaves all other packages to the completion that npx had before.
_hyperlight_mcp_npx() {
  local at=1
  while ((at < COMP_CWORD)) && [[ ${COMP_WORDS[at]} == -* ]]; do ((at++)); done
  if ((at < COMP_CWORD)) && [[ ${COMP_WORDS[at]} == hyperlight-mcp ]]; then
    # --no: Tab never downloads a package.
    _hyperlight_mcp_propose "$at" npx --no hyperlight-mcp
  elif [[ $_hyperlight_mcp_npx_before ]]; then
    "$_hyperlight_mcp_npx_before" "$@"
  fi
}

if [[ $(complete -p npx 2>/dev/null) =~ -F\ ([^ ]+) && ${BASH_REMATCH[1]} != _hyperlight_mcp_npx ]]; then
  _hyperlight_mcp_npx_before=${BASH_REMATCH[1]}
fi
complete -o bashdefault -o default -F _hyperlight_mcp hyperlight-mcp
complete -o bashdefault -o default -F _hyperlight_mcp_npx npx
