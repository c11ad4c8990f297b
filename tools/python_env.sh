# python_env.sh - sourced by tools/test: a virtual environment with other people's readers of our files, and a sender of packets.
#
# sigpyproc needs Python 3.12; the newest Python on the machine is taken, and where that is older the comparison with
# sigpyproc is skipped, which the tests say. The environment is isolated: the distribution's h5py and matplotlib are built
# for another NumPy than the readers ask for.

# setup_python DIR: makes or updates DIR and sets READERS_PYTHON to its interpreter; empty if the readers are not available.
setup_python() {
    local dir=$1 stamp="$1/readers-4" python best=python3 candidate
    READERS_PYTHON=$dir/bin/python
    [ -f "$stamp" ] && return
    for candidate in python3.12 python3.13 "$HOME"/.pyenv/versions/3.1[23]*/bin/python; do
        python=$(command -v "$candidate") || continue
        "$python" -c 'import venv, ensurepip' 2>/dev/null && best=$python
    done
    echo "making $dir with $("$best" --version) and readers of others: baseband, blimpy, your, sigpyproc, spead2, pyuvdata"
    rm -rf "$dir"
    "$best" -m venv "$dir"
    # blimpy imports pkg_resources, which setuptools 81 removed.
    if ! "$READERS_PYTHON" -m pip install -q --disable-pip-version-check 'setuptools<81' numpy baseband blimpy; then
        echo "the readers cannot be installed (is there a network?): comparisons with them will be skipped"
        READERS_PYTHON=
        return
    fi
    local reader
    for reader in your sigpyproc spead2 pyuvdata; do
        "$READERS_PYTHON" -m pip install -q --disable-pip-version-check "$reader" 2>/dev/null ||
            echo "$reader cannot be installed on this Python: its comparison will be skipped"
    done
    touch "$stamp"
}
