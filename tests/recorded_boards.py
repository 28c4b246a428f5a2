"""Trees of files as boards show them, for meters and for `edgefold doctor`.

Layouts follow the kernels' documentation and drivers; the figures are made up, but for names and
clock tables. No tree is a board's whole file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

NVMAP = """CLIENT                        PROCESS      PID        SIZE
user                             Xorg     1801      11356K
user                          python3     4711     102400K
user                       my program     4712          8K
user                          python3     4711       2048K
kernel                         kernel        0        128K
total                                              115932K
"""
MEMINFO = """MemTotal:        7834228 kB
MemFree:         1893120 kB
MemAvailable:    5242880 kB
SwapTotal:       3917104 kB
SwapFree:        3917104 kB
"""
STATUS = (
    "Name:\tpython\nVmHWM:\t   71234 kB\nVmRSS:\t   70012 kB\n"
    "RssAnon:\t   41012 kB\nRssFile:\t   28976 kB\nRssShmem:\t      24 kB\nVmSwap:\t      80 kB\n"
)
ROLLUP = (
    "55d0a3a4d000-7ffd5b9f4000 ---p 00000000 00:00 0      [rollup]\n"
    "Rss:  70016 kB\nPss:  52001 kB\nPrivate_Dirty:  41016 kB\nAnonymous:  41016 kB\nSwap:  80 kB\n"
)
SMAPS = (
    "55d0a3a4d000-55d0a3c4d000 r-xp 00000000 08:01 4711  /usr/bin/python3\n"
    "Size: 2048 kB\nRss: 1024 kB\nReferenced: 512 kB\nAnonymous: 0 kB\n"
    "7ffd5b9d3000-7ffd5b9f4000 rw-p 00000000 00:00 0  [stack]\n"
    "Size: 132 kB\nRss: 96 kB\nReferenced: 96 kB\nAnonymous: 96 kB\n"
)
STAT = "cpu  {user} 0 9000 900000 1000 0 120 0 0 0\ncpu0 1 0 1 1 1 0 1 0 0 0\n"
CGROUPS = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t70\t1\n"
NVPMODEL = """# comment: < POWER_MODEL ID=9 NAME=COMMENTED_OUT >
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_0 /sys/devices/system/cpu/cpu0/online

< POWER_MODEL ID=0 NAME=15W >
CPU_ONLINE CORE_0 1
GPU MAX_FREQ 612000000
< POWER_MODEL ID=1 NAME=25W >
< POWER_MODEL ID=2 NAME=MAXN_SUPER >
< POWER_MODEL ID=3 NAME=7W >

< PM_CONFIG DEFAULT=1 >
"""
L4T = (
    "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, "
    "DATE: Wed Jan  8 01:49:37 UTC 2025\n# KERNEL_VARIANT: oot\n"
)


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write files below root; a name with a trailing slash is a folder."""
    for name, text in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


NVRM_ORIN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  "
    "(buildbrain@mobile-u64)\nGCC version:  collect2: error: ld returned 1 exit status\n"
)


def process(root: Path) -> Path:
    """What /proc tells of the reading process."""
    files = {"status": STATUS, "smaps_rollup": ROLLUP, "smaps": SMAPS, "clear_refs": ""}
    write(root, {"proc/stat": STAT.format(user=40_000)})
    return write(root, {f"proc/self/{name}": text for name, text in files.items()})


@contextmanager
def silent(*files: Path) -> Iterator[None]:
    """Files that answer EAGAIN to every read, as a pipe does that nobody has written into."""
    writers = []
    for file in files:
        file.unlink()
        os.mkfifo(file)
        writers.append(os.open(file, os.O_RDWR | os.O_NONBLOCK))
    yield
    for writer in writers:
        os.close(writer)


def group_v2(root: Path, memory: bool = True, **files: str) -> Path:
    """A service's group in a unified hierarchy; names of files with `_` for the dot."""
    top, shown = "sys/fs/cgroup", "memory " if memory else ""
    write(
        root,
        {
            "proc/self/cgroup": "0::/system.slice/edgefold.service\n",
            "proc/self/mountinfo": "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 "
            "cgroup2 rw,nsdelegate\n",
            "proc/cgroups": CGROUPS,  # kernels from 6.12 on leave memory out, also where v2 has it
            f"{top}/cgroup.controllers": f"cpuset cpu io {shown}pids\n",
            f"{top}/system.slice/edgefold.service/cgroup.controllers": f"{shown}pids\n",
        },
    )
    place = f"{top}/system.slice/edgefold.service"
    return write(
        root, {f"{place}/{name.replace('_', '.', 1)}": text for name, text in files.items()}
    )


def cpu(root: Path, index: int, governor: str, khz: Mapping[str, int]) -> Path:
    """One core's cpufreq folder, kilohertz as the kernel has it."""
    place = f"sys/devices/system/cpu/cpu{index}/cpufreq"
    write(root, {f"{place}/{name}": f"{value}\n" for name, value in khz.items()})
    return write(root, {f"{place}/scaling_governor": f"{governor}\n"})


def cooling(root: Path, *kinds: str) -> Path:
    """Cooling devices at rest, numbered as they come."""
    for index, kind in enumerate(kinds):
        place = f"sys/class/thermal/cooling_device{index}"
        write(root, {f"{place}/type": f"{kind}\n", f"{place}/cur_state": "0\n"})
    return root


def thermal_zone(
    root: Path, index: int, kind: str, temp: int, *trips: tuple[str, int, str]
) -> Path:
    """One zone in thousandths of a degree; a trip is its type, its place, and what it drives."""
    place = f"sys/class/thermal/thermal_zone{index}"
    write(root, {f"{place}/type": f"{kind}\n", f"{place}/temp": f"{temp}\n"})
    for number, (name, at, cooler) in enumerate(trips):
        trip = f"{place}/trip_point_{number}"
        write(root, {f"{trip}_type": f"{name}\n", f"{trip}_temp": f"{at}\n"})
        if cooler:
            found = (p.parent for p in root.glob("sys/class/thermal/cooling_device*/type"))
            device = next(p for p in found if (p / "type").read_text().strip() == cooler)
            (root / place / f"cdev{number}").symlink_to(f"../{device.name}")
            write(root, {f"{place}/cdev{number}_trip_point": f"{number}\n"})
    return root


def over_current(root: Path) -> Path:
    """The counters of a Jetson's soctherm, after some events since the boot."""
    place = "sys/class/hwmon/hwmon3"
    counts = {"oc1": 0, "oc2": 0, "oc3": 37}
    files = {f"{place}/{name}_event_cnt": f"{count}\n" for name, count in counts.items()}
    return write(root, {f"{place}/name": "soctherm_oc\n", **files})


def ina3221(root: Path, chip: str, files: Mapping[str, str]) -> Path:
    """One chip's files, as the kernel's driver shows them."""
    rails = f"sys/bus/i2c/drivers/ina3221/{chip}/hwmon/hwmon1"
    return write(root, {f"{rails}/{name}": text for name, text in files.items()})


def gpu_clock(root: Path, name: str, mhz: tuple[int, int, int], in_tree: str = "gpu") -> Path:
    """A GPU in devfreq: its clock now, the lowest and the highest; 0 MHz while it is off."""
    place = f"sys/class/devfreq/{name}"
    files = {
        f"{place}/{kind}_freq": f"{value * 10**6}\n"
        for kind, value in zip(("cur", "min", "max"), mhz, strict=True)
    }
    files |= {f"{place}/governor": "nvhost_podgov\n"}
    return write(root, {**files, f"{place}/device/of_node/name": f"{in_tree}\0"})


def jetson_orin_nano(root: Path) -> Path:
    """A Jetson Orin Nano developer kit on JetPack 6, read by root, in its 15 W mode."""
    process(root)
    group_v2(root, memory_current="90000000\n", memory_max="max\n")  # kernel 5.15: no memory.peak
    for index in range(6):
        khz = {"scaling_cur_freq": 729600, "scaling_min_freq": 115200, "scaling_max_freq": 1510400}
        cpu(root, index, "schedutil", {**khz, "cpuinfo_max_freq": 1728000})
    cooling(root, "cpufreq-cpu0", "devfreq-17000000.gpu", "hot-surface-alert", "cpu-throttle-alert")
    hot, critical = ("passive", 70000, "hot-surface-alert"), ("critical", 104500, "")
    thermal_zone(root, 0, "cpu-thermal", 48500, hot, ("passive", 99000, "cpufreq-cpu0"), critical)
    gpu = ("passive", 99000, "devfreq-17000000.gpu")
    thermal_zone(root, 1, "gpu-thermal", 47000, hot, gpu, critical)
    thermal_zone(root, 2, "tj-thermal", 51250, ("active", 51000, ""), critical)
    thermal_zone(root, 3, "cv0-thermal", 0)
    over_current(root)
    ina3221(root, "1-0040", INA3221)
    gpu_clock(root, "17000000.gpu", (306, 306, 612))
    return write(
        root,
        {
            "proc/device-tree/model": "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit "
            "Super\0",
            "proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 62.50\n",
            "proc/meminfo": MEMINFO,
            "etc/nv_tegra_release": L4T,
            "proc/driver/nvidia/version": NVRM_ORIN,
            "etc/nvpmodel.conf": NVPMODEL,
            "var/lib/nvpmodel/status": "pmode:0000 fmode:quiet\n",
            "sys/kernel/debug/bpmp/debug/clk/emc/rate": "2133000000\n",
            "sys/kernel/nvpmodel_clk_cap/emc": "2133000000\n",
            "sys/class/devfreq/17000000.gpu/device/tpc_pg_mask": "240\n",
            "sys/kernel/debug/nvmap/iovmm/clients": NVMAP,
        },
    )


def jetson_agx_orin(root: Path) -> Path:
    """A Jetson AGX Orin on JetPack 5 (kernel 5.10), in MAXN, read by a user."""
    process(root)
    group_v2(root, memory_current="90000000\n", memory_max="2000000000\n")
    for index in range(12):
        khz = {"scaling_cur_freq": 2201600, "scaling_min_freq": 115200, "scaling_max_freq": 2201600}
        cpu(root, index, "schedutil", {**khz, "cpuinfo_max_freq": 2201600})
    cooling(root, "thermal-cpufreq-0", "thermal-devfreq-0", "hot-surface-alert")
    hot, critical = ("passive", 70000, "hot-surface-alert"), ("critical", 104500, "")
    cores = ("passive", 99000, "thermal-cpufreq-0")
    thermal_zone(root, 0, "CPU-therm", 55000, hot, cores, critical)
    thermal_zone(root, 1, "GPU-therm", 51000, ("passive", 99000, "thermal-devfreq-0"), critical)
    thermal_zone(root, 2, "CV0-therm", -256000)  # off
    over_current(root)
    slow = {"update_interval": "430\n", "samples": "512\n"}  # one round takes so many ms
    rails = {"in1_label": "VDD_GPU_SOC\n", "in2_label": "VDD_CPU_CV\n"}
    ina3221(root, "1-0040", {**INA3221, **rails, "in3_label": "VIN_SYS_5V0\n", **slow})
    gpu_clock(root, "17000000.ga10b", (306, 306, 1300), "ga10b")
    return write(
        root,
        {
            "proc/device-tree/model": "Jetson AGX Orin\0",
            "proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 62.50\n",
            "proc/meminfo": MEMINFO,
            "etc/nv_tegra_release": "# R35 (release), REVISION: 4.1, GCID: 1, BOARD: t186ref\n",
            "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >\n< PM_CONFIG DEFAULT=2 >\n",
            "var/lib/nvpmodel/status": "pmode:0000\n",
        },
    )


def jetson_thor(root: Path) -> Path:
    """A Jetson AGX Thor on JetPack 7 (kernel 6.8), in its 120 W mode, read by a user."""
    process(root)
    group_v2(root, memory_current="90000000\n", memory_max="max\n", memory_peak="95000000\n")
    for index in range(14):
        khz = {"scaling_cur_freq": 972000, "scaling_min_freq": 54000, "scaling_max_freq": 2601000}
        cpu(root, index, "schedutil", {**khz, "cpuinfo_max_freq": 2601000})
    cooling(root, "cpufreq-cpu0", "devfreq-gpu-gpc-0", "hot-surface-alert")
    hot, critical = ("passive", 70000, "hot-surface-alert"), ("critical", 114500, "")
    thermal_zone(root, 0, "cpu-thermal", 44500, ("passive", 109000, "cpufreq-cpu0"), critical)
    gpu = ("passive", 109000, "devfreq-gpu-gpc-0")
    thermal_zone(root, 1, "gpu-thermal", 43000, hot, gpu, critical)
    thermal_zone(root, 2, "tj-thermal", 45000, critical)
    over_current(root)
    rails = {"in1_label": "VDD_GPU\n", "in2_label": "VDD_CPU_SOC_MSS\n"}
    ina3221(root, "2-0040", {**INA3221, **rails, "in3_label": "VIN_SYS_5V0\n", "samples": "512\n"})
    input_w = "sys/bus/i2c/drivers/ina238/2-0044/hwmon/hwmon4"
    gpu_clock(root, "gpu-gpc-0", (0, 315, 1575))  # off: the driver shows 0
    bandwidth = "sys/class/devfreq/bwmgr"
    return write(
        root,
        {
            "proc/device-tree/model": "NVIDIA Jetson AGX Thor Developer Kit\0",
            "proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 2000.00\n",
            "proc/meminfo": MEMINFO.replace("7834228", "128817000"),
            "etc/nv_tegra_release": "# R38 (release), REVISION: 2.0, GCID: 1, BOARD: generic\n",
            "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=1 NAME=120W >\n"
            "< PM_CONFIG DEFAULT=1 >\n",
            "var/lib/nvpmodel/status": "pmode:0001\n",
            f"{bandwidth}/cur_freq": "665600000\n",
            f"{bandwidth}/max_freq": "4266000000\n",
            f"{input_w}/name": "ina238\n",
            f"{input_w}/power1_input": "31250000\n",
        },
    )


INA3221 = {
    "name": "ina3221\n",
    "in1_label": "VDD_IN\n",
    "in2_label": "VDD_CPU_GPU_CV\n",
    "in3_label": "VDD_SOC\n",
    "in7_label": "sum of shunt voltages\n",
    "in1_input": "4984\n",
    "in2_input": "4976\n",
    "in3_input": "4984\n",
    "curr1_input": "936\n",
    "curr2_input": "112\n",
    "curr3_input": "256\n",
}


def raspberry_pi_5(root: Path) -> Path:
    """A Raspberry Pi 5 as its system comes: no memory controller, throttled in the past."""
    process(root)
    group_v2(root, memory=False)
    for index in range(4):
        khz = {"scaling_cur_freq": 1500000, "scaling_min_freq": 1500000}
        cpu(root, index, "ondemand", {**khz, "scaling_max_freq": 2400000})
    cooling(root, "pwm-fan", "cpufreq-cpu0")
    fan = ("active", 50000, "pwm-fan")
    thermal_zone(root, 0, "cpu-thermal", 55300, ("critical", 110000, ""), fan)
    return write(
        root,
        {
            "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
            "proc/cpuinfo": "processor\t: 0\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n",
            "proc/meminfo": MEMINFO,
            "sys/devices/platform/soc/soc:firmware/get_throttled": "50000\n",
        },
    )


def raspberry_pi_4(root: Path) -> Path:
    """A Raspberry Pi 4 whose kernel ignores that the memory controller was asked for."""
    process(root)
    group_v2(root, memory=False)
    for index in range(4):
        khz = {"scaling_cur_freq": 1800000, "scaling_min_freq": 600000}
        cpu(root, index, "ondemand", {**khz, "scaling_max_freq": 1800000})
    thermal_zone(root, 0, "cpu-thermal", 61300, ("critical", 110000, ""))
    return write(
        root,
        {
            "proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.5\0",
            "proc/cpuinfo": "processor\t: 0\nModel\t\t: Raspberry Pi 4 Model B Rev 1.5\n",
            "proc/cmdline": "cgroup_disable=memory rootwait cgroup_enable=memory\n",
            "proc/meminfo": MEMINFO,
            "sys/devices/platform/soc/soc:firmware/get_throttled": "0\n",
        },
    )
