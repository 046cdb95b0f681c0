# Builds the compiled data plane into the virtual environment, where cargo is.  Bash; sourced after setup.sh.
#
# prepare_native   builds it if native/ has changed since; the node runs without it as well, so this never fails

CARGO_NEEDED=1.85
NO_NETWORK='NewConnectionError|ConnectTimeout|Temporary failure|getaddrinfo|ProxyError|Could not resolve|No matching distribution'

native_state() (
    cd "$top"
    find native -name target -prune -o -type f -print0 | sort -z | xargs -0 cksum | cksum
    "$venv/bin/python" --version
)

# Why it cannot be built here; nothing if it can.
native_obstacle() {
    local version
    command -v cargo >/dev/null || { echo "there is no cargo here"; return; }
    # Without a default toolchain rustup's cargo is there, and fails.
    version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2)
    [ -n "$version" ] || { echo "the cargo here does not work: try cargo --version"; return; }
    [ "$(printf '%s\n' "$CARGO_NEEDED" "$version" | sort -V | head -n 1)" = "$CARGO_NEEDED" ] ||
        echo "cargo is $version, and $CARGO_NEEDED is needed"
}

prepare_native() {
    local state why
    [ "${MSGNODE_NATIVE:-}" != 0 ] || return 0
    state=$(native_state)
    if [ -f "$venv/native-built" ] && [ "$state" = "$(<"$venv/native-built")" ]; then
        return 0
    fi
    why=$(native_obstacle)
    [ -n "$why" ] || build_native "$state" || why=$(native_failure)
    # One of another version would not be used.
    [ -z "$why" ] || echo "The data plane runs in Python alone: $why."
}

# Why the build failed, by its log.
native_failure() {
    if grep -qiE "$NO_NETWORK" "$venv/native.log"; then
        echo "what its build needs cannot be fetched; is there a network?  It is tried again the next time"
    else
        echo "it could not be built, see $venv/native.log"
    fi
}

build_native() {
    printf 'Building the compiled data plane; the first time this takes about a minute '
    if CARGO_TARGET_DIR="$venv/native-target" "$venv/bin/python" -m pip install --no-input \
        --retries 1 --disable-pip-version-check --no-deps --force-reinstall --verbose "$top/native" 2>&1 |
        tee "$venv/native.log" | while read -r word rest; do
        case $word in Compiling | Downloading | Downloaded) printf '.' ;; esac
    done; [ "${PIPESTATUS[0]}" = 0 ]; then
        echo "$1" >"$venv/native-built"
        echo " done"
        return 0
    fi
    echo
    return 1
}
