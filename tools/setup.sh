# setup.sh - sourced by tools/demo and tools/test: installs what they need and the machine lacks.
#
# setup_packages demo|test: on Debian and Ubuntu missing packages are installed with apt-get, through sudo where the caller is not
# root; nothing is touched, and no network needed, when all are there. Elsewhere the compiler's and pkg-config's word is taken
# for what is there, and what is missing is named.

setup_packages() {
    local purpose=$1 package
    local -a wanted=(meson ninja-build gcc libc6-dev pkg-config libyaml-dev libev-dev libhdf5-dev liblz4-dev libcurl4-openssl-dev libjansson-dev libmicrohttpd-dev libpcap-dev libfftw3-dev libopenblas-dev liberfa-dev
        python3 python3-numpy python3-matplotlib python3-yaml python3-h5py) missing=()
    case $purpose in
    demo) ;;
    test) wanted+=(ccache python3-dev openmpi-bin libopenmpi-dev slurm-wlm munge libcmocka-dev clang python3-venv diffutils groff-base) ;;
    *) echo "setup_packages: '$purpose' is neither demo nor test" >&2 && return 2 ;;
    esac
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        setup_look_around "$purpose" "${wanted[@]}"
        return
    fi
    for package in "${wanted[@]}"; do
        setup_has "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} != 0 ]; then setup_install "${missing[@]}" || return; fi
    # clang's sanitizer and fuzzer runtimes are a package of their own in newer releases, under different names.
    if [ "$purpose" = test ] && ! setup_can_fuzz; then
        local version
        version=$(clang -dumpversion | cut -d. -f1)
        for package in libclang-rt-dev "libclang-rt-$version-dev"; do
            if ! setup_can_fuzz && setup_knows "$package"; then setup_install "$package" || return; fi
        done
    fi
    # The browser that tests the live page. Ubuntu has Chromium as a snap only: there the test says that it is missing.
    if [ "$purpose" = test ] && ! setup_has_browser && setup_knows chromium; then setup_install chromium || return; fi
    return 0
}

# setup_install PACKAGES...
setup_install() {
    echo "installing with apt-get: $*"
    local -a as_root=()
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "these packages are missing: $*" >&2
            echo "install them as root (there is no sudo here): apt-get install $*" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    local log
    log=$(mktemp)
    if ! { "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "apt-get could not install $*; its whole output is in $log" >&2
        return 1
    fi
    rm -f "$log"
}

# Whether clang is there and can link a program with its fuzzer and sanitizers.
setup_can_fuzz() {
    echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d != 0 && n == 1; }' |
        clang -x c -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null
}

setup_has_browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null

setup_has() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

setup_knows() { apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [0-9]'; }

# setup_look_around PURPOSE DEBIAN_PACKAGES...: for other systems, where we install nothing.
setup_look_around() {
    local purpose=$1 name
    local -a missing=()
    shift
    for name in meson ninja cc pkg-config python3; do
        command -v "$name" >/dev/null || missing+=("$name")
    done
    for name in yaml-0.1 fftw3 fftw3f openblas liblz4 libcurl jansson libmicrohttpd libpcap; do
        pkg-config --exists "$name" 2>/dev/null || missing+=("$name (pkg-config)")
    done
    echo '#include <ev.h>' | cc -E - >/dev/null 2>&1 || missing+=("libev's header ev.h")
    command -v h5cc >/dev/null || pkg-config --exists hdf5 2>/dev/null || missing+=("HDF5 for C")
    for name in numpy matplotlib yaml; do
        python3 -c "import $name" 2>/dev/null || missing+=("python3's $name")
    done
    if [ "$purpose" = test ]; then
        pkg-config --exists cmocka 2>/dev/null || missing+=("cmocka (pkg-config)")
        python3 -c "import h5py" 2>/dev/null || missing+=("python3's h5py")
    fi
    [ ${#missing[@]} = 0 ] && return
    {
        echo "this is not Debian or Ubuntu, so nothing is installed for you. Missing:"
        printf '    %s\n' "${missing[@]}"
        echo "On Debian the packages are: $*"
    } >&2
    return 1
}
