package clock

const Recheck = recheck
