"""Many users on one Postgres: measured on one machine, and from there on modelled (docs/evaluation/scale.md)."""
