package clock

const (
	FollowRate = followRate
	Recheck    = recheck
)
