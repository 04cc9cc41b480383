# SPDX-License-Identifier: BSD-3-Clause
"""What scripts/seeds is made of; it measures with benchlib."""
