"""Simulate several processes, their deaths, their clocks and a store with faults, in one process and without waiting."""

from .simulate import PlayedSchedule, Simulation, play, run_schedules, simulate

__all__ = ["PlayedSchedule", "Simulation", "play", "run_schedules", "simulate"]
