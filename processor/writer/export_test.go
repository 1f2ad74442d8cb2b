package writer

const (
	AckTimeout    = ackTimeout
	MaxPause      = maxPause
	MaxRecoveries = maxRecoveries
	ResumedAfter  = resumedAfter
)
