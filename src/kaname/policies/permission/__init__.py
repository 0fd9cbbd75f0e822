"""May it do that? Approvals, permissions, and the flow of data from untrusted sources."""
