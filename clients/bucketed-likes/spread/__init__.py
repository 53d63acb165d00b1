"""The likes of a post, spread over many rows, and read back as if they were one."""
