"""The work itself. These modules are imported only in the processes of `senses.process`."""
