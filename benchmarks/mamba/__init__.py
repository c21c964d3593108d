"""Successive halving by Stein discrepancy (Coullon, South & Nemeth 2023) against `sample`."""
