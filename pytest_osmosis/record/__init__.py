"""The record of an eval: run ids, events, records, the journal, the plan, run directories."""
