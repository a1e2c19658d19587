# Completion of hyperlight-mcp for fish, also behind npx.

# Prints the position of hyperlight-mcp in `npx [OPTIONS] hyperlight-mcp …`, or fails if the line is about another package.
function __hyperlight_mcp_behind_npx
    set -l typed (commandline --tokenize --cut-at-cursor --current-process)
    set -l at 2
    while test $at -le (count $typed); and string match --quiet -- '-*' $typed[$at]
        set at (math $at + 1)
    end
    test $at -le (count $typed); and test $typed[$at] = hyperlight-mcp; and echo $at
end

function __hyperlight_mcp_propose
    set -l typed (commandline --tokenize --cut-at-cursor --current-process)
    set -l at 1
    set -l program $typed[1]
    if test $program = npx
        set at (__hyperlight_mcp_behind_npx); or return
        # --no: Tab never downloads a package.
        set program npx --no hyperlight-mcp
    end
    set -e typed[1..$at]
    $program complete hyperlight-mcp $typed (commandline --current-token --cut-at-cursor) 2>/dev/null
end

complete --command hyperlight-mcp --no-files --keep-order --arguments '(__hyperlight_mcp_propose)'
complete --command npx --condition __hyperlight_mcp_behind_npx --no-files --keep-order --arguments '(__hyperlight_mcp_propose)'
