# SPDX-License-Identifier: BSD-3-Clause
"""The parts of scripts/chain: what a guest's sync does, as far as the disk."""


class Failed(Exception):
    """Something that ends the run; its text is one line for the person."""
