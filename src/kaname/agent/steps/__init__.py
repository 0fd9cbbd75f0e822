"""The run as steps that the caller pulls one by one."""
