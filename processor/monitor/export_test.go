package monitor

const HungAfter = hungAfter
