"""What may it cost? Limits on money, tokens and calls: `Budget`, and the `Meter` that counts."""
