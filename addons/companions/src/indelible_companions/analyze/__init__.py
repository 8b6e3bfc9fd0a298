"""Analyses of marked models."""
