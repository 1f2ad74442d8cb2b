package lease

// ForgetRenewal makes the lease as it was before its last renewal.
func (l *Lease) ForgetRenewal() { l.revision-- }
