# Sets up the virtual environment of this checkout, for tools/run, tools/test and docs/examples/run.  Bash; sourced with `top` and `venv` set.
#
# prepare WHAT   installs this checkout, `WHAT` being "" or an extra such as [test]

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# One at a time: two terminals would install over each other.
prepare() {
    mkdir -p "$(dirname "$venv")"
    exec 9>"$venv.lock"
    if command -v flock >/dev/null && ! flock -n 9; then
        echo "Another terminal sets up $venv; waiting for it ..."
        flock 9
    fi
    make_venv
    # Nothing is fetched for what is there already, nor replaced under a node that runs from here.
    is_installed "$1" || install "$1"
    if declare -F prepare_native >/dev/null; then
        prepare_native
    fi
    exec 9>&-
}

make_venv() {
    local python=${PYTHON:-python3}
    # Half of one is left when making it was interrupted, or when the machine lacks a part of Python.
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1 && is_whole; then
        return
    fi
    command -v "$python" >/dev/null || fail "there is no $python here; msgnode needs Python 3.11 or later"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "msgnode needs Python 3.11 or later, and $python is $("$python" --version 2>&1); name another: PYTHON=python3.12 $0"
    echo "Making a virtual environment in $venv ..."
    local said
    if ! said=$("$python" -m venv --clear "$venv" 2>&1); then
        rm -rf "$venv"
        case $said in
        *ensurepip* | *python3-venv*) fail "Python's venv is missing here; on Debian and Ubuntu: apt-get install python3-venv" ;;
        *) fail "no virtual environment can be made in $venv: $said" ;;
        esac
    fi
}

# Are all packages there that were installed?  pip takes what it has noted for what is there.
is_whole() {
    "$venv/bin/python" -I -c '
import sys
from importlib.metadata import distributions

files = (file for one in distributions() for file in one.files or () if file.name == "__init__.py")
sys.exit(not all(file.locate().exists() for file in files))'
}

sources() (
    cd "$top"
    find setup.cfg pyproject.toml MANIFEST.in README.md NEWS.md LICENSE constraints.txt msgnode msgnode_report twisted etc docs -name __pycache__ -prune -o -name dropin.cache -o -type f -print0 |
        sort -z | xargs -0 cksum | cksum
)

# Is it this checkout that was installed last, and with `$1`?
is_installed() {
    local record sum what
    for record in "$venv"/lib/python*/site-packages/msgnode-*.dist-info/RECORD; do
        [ "$venv/installed" -nt "$record" ] || return
    done
    read -r sum what <"$venv/installed" && [ "$sum" = "$(sources | tr ' ' -)" ] && [[ "$what" == *"$1" ]]
}

install() (
    source=$(mktemp -d) log=$(mktemp) sum=$(sources | tr ' ' -)
    trap 'rm -rf "$source" "$log"' EXIT
    # A copy, because setuptools leaves its build beside what it builds.  A plain install, as users have it: an
    # editable one hides the twistd plugin.
    cp -R "$top"/{setup.cfg,pyproject.toml,MANIFEST.in,README.md,NEWS.md,LICENSE,constraints.txt,msgnode,msgnode_report,twisted,etc,docs} "$source"
    find "$source" -name __pycache__ -prune -exec rm -rf {} +
    printf 'Installing msgnode and what it needs; the first time this takes a minute or two '
    if "$venv/bin/python" -m pip install --no-input --disable-pip-version-check --upgrade "$source/msgnode_report" "$source$1" 2>&1 |
        tee "$log" | while read -r word rest; do
        case $word in Collecting | Downloading | Building | Installing) printf '.' ;; esac
    done; [ "${PIPESTATUS[0]}" = 0 ]; then
        echo "$sum $1" >"$venv/installed"
        echo " done"
        exit
    fi
    echo
    tail -n 5 "$log" >&2
    if grep -qE 'NewConnectionError|ConnectTimeout|Temporary failure|getaddrinfo|ProxyError|No matching distribution' "$log"; then
        fail "pip cannot fetch what is missing: is there a network?  It is tried again the next time."
    fi
    fail "pip could not install msgnode; its last words are above"
)
