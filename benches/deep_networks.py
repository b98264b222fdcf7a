#!/usr/bin/env python3
"""What less memory costs on the networks that HiRemate (Gusak et al. 2025) was measured on.

usage: deep_networks.py SUBLET OUT.csv [NETWORK ...] [--means recompute,all] [--limits 50,40,30]

GPT2-medium, U-Net, MLP-Mixer, RegNet 32 GF and ResNet-101 are generated, and fitted to 50, 40 and 30 % of their peak: by
recomputation alone, which is what HiRemate does, and by all means. Operators have the times of a roofline, and what comes out is
simulated: nothing runs. The lower bound is on the overhead of any schedule by the same means. A row that has no overhead does not
fit, and names the least limit that was found.
"""
import argparse
import csv
import tempfile
from pathlib import Path

from program import run

NETWORKS = {
    "gpt2_medium_b4": ["gpt", "--layers", "24", "--width", "1024", "--heads", "16", "--batch", "4"],
    "unet_b32": ["unet", "--batch", "32"],
    "mlp_mixer_b64": ["mixer", "--batch", "64"],
    "regnet_x_32gf_b32": ["regnet", "--tenths", "320", "--batch", "32"],
    "resnet101_b32": ["resnet", "--depth", "101", "--batch", "32"],
}
MEANS = {"recompute": ["--using", "recompute"], "all": ["--reorder"]}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("sublet")
    parser.add_argument("out")
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--means", default="recompute,all")
    parser.add_argument("--limits", default="50,40,30")
    asked = parser.parse_args()
    sublet = asked.sublet
    with open(asked.out, "w", newline="") as file, tempfile.TemporaryDirectory() as folder:
        write = csv.writer(file, lineterminator="\n").writerow
        write(["network", "rows", "peak_bytes", "means", "limit_percent", "overhead", "lower_bound", "least_percent", "cpu_s"])
        for name in asked.networks:
            trace = Path(folder) / f"{name}.csv"
            made, _, _ = run(sublet, "generate", *NETWORKS[name], "--output", trace)
            peak = made["max_load"]
            for means in asked.means.split(","):
                for percent in map(int, asked.limits.split(",")):
                    fit, fits, seconds = run(sublet, "fit", trace, "--limit", peak * percent // 100, *MEANS[means])
                    told = [f"{fit['overhead']:.4f}", f"{fit.get('overhead_lower_bound', 0):.4f}", ""] if fits else [
                        "", "", f"{100 * fit['least_limit'] / peak:.1f}"]
                    write([name, made["rows"], peak, means, percent, *told, f"{seconds:.1f}"])
                    file.flush()


if __name__ == "__main__":
    main()
