"""A real Slurm of one machine, in a folder of the test's own."""
import glob
import os
import secrets
import shutil
import socket
import subprocess
import time

from harness import free_port


class Missing(Exception):
    """Slurm is not installed, or cannot run here."""


def require():
    for name in ("munged", "slurmctld", "slurmd", "sbatch"):
        if shutil.which(name) is None:
            raise Missing(f"there is no {name}: install slurm-wlm and munge")
    if os.geteuid() != 0:
        raise Missing("slurmd wants root")


class Slurm:
    """munged, slurmctld and slurmd for jobs of so many tasks, with all of their files below one folder."""

    def __init__(self, d, tasks):
        self.d, self.daemons, host = d, [], socket.gethostname().split(".")[0]
        for name in ("state", "spool"):
            os.mkdir(os.path.join(d, name))
        os.chmod(d, 0o755)
        key = os.path.join(d, "munge.key")
        with open(key, "wb") as f:
            f.write(secrets.token_bytes(128))
        os.chmod(key, 0o400)
        controller, daemon = free_port(), free_port()
        with open(os.path.join(d, "slurm.conf"), "w") as f:
            f.write(f"""ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={d}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmctldPidFile={d}/ctld.pid
SlurmdPidFile={d}/slurmd.pid
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool
SlurmctldLogFile={d}/ctld.log
SlurmdLogFile={d}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={tasks} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
""")
        self.env = {**os.environ, "SLURM_CONF": os.path.join(d, "slurm.conf")}
        self.start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={d}/munge.socket",
                   f"--pid-file={d}/munged.pid", f"--log-file={d}/munged.log", f"--seed-file={d}/munged.seed")
        self.wait(lambda: os.path.exists(f"{d}/munge.socket"), "munged")
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D", "-N", host)
        self.wait(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%t"), "an idle node")

    def start(self, *command):
        with open(os.path.join(self.d, command[0] + ".out"), "w") as out:
            self.daemons.append(subprocess.Popen(command, env=self.env, stdout=out, stderr=out))

    def ask(self, *command):
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60).stdout

    def wait(self, condition, what):
        end = time.time() + 30
        while time.time() < end:
            if condition():
                return
            if any(x.poll() is not None for x in self.daemons):
                break
            time.sleep(0.2)
        logs = ""
        for path in glob.glob(f"{self.d}/*.log") + glob.glob(f"{self.d}/*.out"):
            with open(path, errors="replace") as f:
                logs += f"{os.path.basename(path)}: {f.read()[-400:]}\n"
        self.end()
        raise Missing(f"Slurm cannot run here, there is no {what}:\n{logs}")

    def end(self):
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
