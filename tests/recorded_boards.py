"""Trees of files as boards show them, for meters and for `edgefold doctor`.

Layouts follow the kernels' documentation and drivers; the figures are made up, but for names and
clock tables. No tree is a board's whole file system.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def process(root: Path) -> Path:
    """What /proc tells of the reading process."""
    files = {"status": STATUS, "smaps_rollup": ROLLUP, "clear_refs": ""}
    return write(root, {f"proc/self/{name}": text for name, text in files.items()})


def group_v2(root: Path, **files: str) -> Path:
    """A service's group in a unified hierarchy; names of files with `_` for the dot."""
    top = "sys/fs/cgroup"
    write(
        root,
        {
            "proc/self/cgroup": "0::/system.slice/edgefold.service\n",
            "proc/self/mountinfo": "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 "
            "cgroup2 rw,nsdelegate\n",
            f"{top}/cgroup.controllers": "cpuset cpu io memory pids\n",
            f"{top}/system.slice/edgefold.service/cgroup.controllers": "memory pids\n",
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


def thermal_zone(root: Path, index: int, kind: str, temp: int, trips: Mapping[str, int]) -> Path:
    """One zone in thousandths of a degree, with its trip points by type."""
    place = f"sys/class/thermal/thermal_zone{index}"
    write(root, {f"{place}/type": f"{kind}\n", f"{place}/temp": f"{temp}\n"})
    for number, (name, at) in enumerate(trips.items()):
        write(
            root,
            {
                f"{place}/trip_point_{number}_type": f"{name}\n",
                f"{place}/trip_point_{number}_temp": f"{at}\n",
            },
        )
    return root


def jetson_orin_nano(root: Path) -> Path:
    """A Jetson Orin Nano developer kit on JetPack 6, read by root, in its 15 W mode."""
    process(root)
    group_v2(root, memory_current="90000000\n", memory_max="max\n")  # kernel 5.15: no memory.peak
    for index in range(6):
        khz = {"scaling_cur_freq": 729600, "scaling_min_freq": 115200, "scaling_max_freq": 1510400}
        cpu(root, index, "schedutil", {**khz, "cpuinfo_max_freq": 1728000})
    thermal_zone(root, 0, "cpu-thermal", 48500, {"passive": 99000, "critical": 104500})
    thermal_zone(root, 1, "tj-thermal", 51250, {"active": 51000, "critical": 104500})
    gpu = "sys/class/devfreq/17000000.gpu"
    rails = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1"
    clocks = "sys/kernel/debug/bpmp/debug/clk/emc"
    model = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super\0"
    return write(
        root,
        {
            "proc/device-tree/model": model,
            "proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 62.50\n",
            "proc/meminfo": MEMINFO,
            "etc/nv_tegra_release": L4T,
            "etc/nvpmodel.conf": NVPMODEL,
            "var/lib/nvpmodel/status": "pmode:0000 fmode:quiet\n",
            f"{gpu}/cur_freq": "306000000\n",
            f"{gpu}/min_freq": "306000000\n",
            f"{gpu}/max_freq": "612000000\n",
            f"{gpu}/governor": "nvhost_podgov\n",
            f"{clocks}/rate": "2133000000\n",
            "sys/kernel/debug/nvmap/iovmm/clients": NVMAP,
            **{f"{rails}/{name}": text for name, text in INA3221.items()},
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
    group_v2(root)
    for index in range(4):
        khz = {"scaling_cur_freq": 1500000, "scaling_min_freq": 1500000}
        cpu(root, index, "ondemand", {**khz, "scaling_max_freq": 2400000})
    thermal_zone(root, 0, "cpu-thermal", 55300, {"critical": 110000, "active": 50000})
    return write(
        root,
        {
            "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
            "proc/cpuinfo": "processor\t: 0\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n",
            "proc/meminfo": MEMINFO,
            "sys/devices/platform/soc/soc:firmware/get_throttled": "50000\n",
        },
    )
