// What is known of this machine, its user and the environment, as far as it can decide the result of a test. For kept.mjs.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { accessSync, constants, readdirSync, readFileSync, realpathSync, statfsSync, statSync } from 'node:fs'
import { cpus, homedir, machine, release, tmpdir, totalmem, version } from 'node:os'
import { join } from 'node:path'

/** Variables of the environment that differ between terminals, and between `npm test` and `scripts/test`. All others count. */
const IGNORED_VARIABLES = new Set(
  `_ SHLVL PWD OLDPWD TERM COLORTERM COLUMNS LINES COLOR EDITOR WINDOWID SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK TMUX TMUX_PANE STY
  TERM_PROGRAM TERM_PROGRAM_VERSION TERM_SESSION_ID XDG_SESSION_ID INVOCATION_ID JOURNAL_STREAM INIT_CWD NODE npm_command npm_execpath
  npm_node_execpath npm_lifecycle_event npm_lifecycle_script npm_package_json npm_package_name npm_package_version npm_package_engines_node
  npm_package_bin_hyperlight_mcp npm_config_local_prefix npm_config_user_agent npm_config_npm_version`.split(/\s+/),
)
/** Programs of the machine that tests start. */
const PROGRAMS =
  'node npm npx cargo rustc python3 git bash sh env timeout setpriv valgrind zsh fish busybox qemu-system-x86_64 cpio strip nm unshare cp'.split(
    ' ',
  )
/** Files of the machine that decide what tests find. */
const FILES = [
  ...['hosts', 'resolv.conf', 'nsswitch.conf', 'gitconfig', 'pip.conf', 'passwd', 'group'].map((name) => `/etc/${name}`),
  ...['.npmrc', '.gitconfig', '.config/git/config', '.config/pip/pip.conf', '.cargo/config.toml'].map((name) => join(homedir(), name)),
  ...['user/max_user_namespaces', 'kernel/unprivileged_userns_clone', 'kernel/apparmor_restrict_unprivileged_userns'].map(
    (name) => `/proc/sys/${name}`,
  ),
  ...['kernel/yama/ptrace_scope', 'vm/overcommit_memory', 'fs/inotify/max_user_watches'].map((name) => `/proc/sys/${name}`),
  '/proc/self/limits',
  '/sys/kernel/security/lsm',
  '/sys/fs/cgroup/cgroup.controllers',
  // The versions of all installed packages, on Debian.
  '/var/lib/dpkg/status',
]
/** Folders of the cache folder, in which scripts/setup names each version of a tool after the digest of its lock file. */
const TOOLS = ['node', 'servers', 'python', 'python-mcp1', 'uv', 'kernel', 'search-model']

/** Returns what `read` returns, or `none` if that is not there. */
function ifThere(read) {
  try {
    return read()
  } catch {
    return 'none'
  }
}

const isAllowed = (path, mode) => ifThere(() => accessSync(path, mode) ?? 'yes')

/** Returns the file of a program, with its size and time. */
function programFile(name, path) {
  const found = path.map((folder) => ifThere(() => realpathSync(join(folder, name)))).find((file) => file !== 'none')
  return found && ifThere(() => [found, statSync(found).size, statSync(found).mtimeMs])
}

/** Returns all facts, with their names. */
export function machineFacts(environment = process.env) {
  const path = (environment.PATH ?? '').split(':').filter((folder) => !/\/(node_modules\/\.bin|node-gyp-bin)$/.test(folder))
  const cache = join(environment.XDG_CACHE_HOME || join(homedir(), '.cache'), 'hyperlight-mcp')
  const group = readFileSync('/proc/self/cgroup', 'utf8').match(/^0::(.*)$/m)?.[1]
  return {
    node: process.version,
    rust: ifThere(() => execFileSync('rustc', ['-vV']).toString()),
    kernel: [release(), version(), machine()],
    processors: [cpus().length, cpus()[0]?.model],
    memory: Math.round(totalmem() / 2 ** 30),
    kvm: isAllowed('/dev/kvm', constants.R_OK | constants.W_OK),
    ownGroup: isAllowed(`/sys/fs/cgroup${group}`, constants.W_OK),
    user: readFileSync('/proc/self/status', 'utf8').match(/^(Uid|Gid|Groups|Cap\w+|NoNewPrivs|Seccomp|Umask|Cpus_allowed):.*$/gm),
    fileSystems: ['.', tmpdir(), homedir(), '/dev/shm', '/sys/fs/cgroup'].map((folder) => ifThere(() => statfsSync(folder).type)),
    files: FILES.map((file) => [file, ifThere(() => createHash('sha256').update(readFileSync(file)).digest('hex'))]),
    programs: PROGRAMS.map((name) => [name, programFile(name, path)]),
    tools: TOOLS.map((name) => [
      name,
      ifThere(() =>
        readdirSync(join(cache, name))
          .filter((entry) => !entry.startsWith('.'))
          .sort(),
      ),
    ]),
    path,
    variables: Object.entries(environment)
      .filter(([name]) => name !== 'PATH' && !IGNORED_VARIABLES.has(name))
      .sort(),
  }
}
