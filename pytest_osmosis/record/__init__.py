"""What happened and what is planned: run ids, events, records, the journal, the plan."""
