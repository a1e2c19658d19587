#compdef hyperlight-mcp
# Completion of hyperlight-mcp for zsh, also behind npx.

# Proposes what the program proposes for the words from its name to the cursor.
_hyperlight_mcp_propose() { # _hyperlight_mcp_propose FIRST PROGRAM…
  local first=$1 line value
  shift
  local -a typed=("${(@Q)words[first,CURRENT]}") plain described folders
  for line in "${(@f)$("$@" complete hyperlight-mcp "${(@)typed[2,-1]}" 2>/dev/null)}"; do
    value=${line%%$'\t'*}
    if [[ -z $value ]]; then
      continue
    elif [[ $value == */ ]]; then
      folders+=("$value")
    elif [[ $line == *$'\t'* ]]; then
      described+=("${value//:/\\:}:${line#*$'\t'}")
    else
      plain+=("$value")
    fi
  done
  (( $#plain + $#described + $#folders )) || { _files; return }
  (( $#folders )) && compadd -S '' -a folders
  (( $#plain )) && compadd -a plain
  (( $#described )) && _describe -V 'hyperlight-mcp' described
}

_hyperlight_mcp() {
  _hyperlight_mcp_propose 1 "${(Q)words[1]}"
}

# Completes `npx [OPTIONS] hyperlight-mcp …`, and leaves all other packages to the completion that npx had before.
_hyperlight_mcp_npx() {
  local at=2
  while (( at < CURRENT )) && [[ $words[at] == -* ]]; do (( at++ )); done
  if (( at < CURRENT )) && [[ $words[at] == hyperlight-mcp ]]; then
    # --no: Tab never downloads a package.
    _hyperlight_mcp_propose $at npx --no hyperlight-mcp
  else
    ${_hyperlight_mcp_npx_before:-_default} "$@"
  fi
}

if [[ $funcstack[1] == _hyperlight-mcp ]]; then
  # zsh has loaded this file from fpath.
  _hyperlight_mcp "$@"
else
  [[ ${_comps[npx]-} == _hyperlight_mcp_npx ]] || _hyperlight_mcp_npx_before=${_comps[npx]-}
  compdef _hyperlight_mcp hyperlight-mcp
  compdef _hyperlight_mcp_npx npx
fi
