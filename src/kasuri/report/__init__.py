"""What people see: figures, reports. Built from a release alone."""
