package service

import (
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/answer"
)

const (
	LargeBody      = largeBody
	MaxWaiting     = maxWaiting
	RequestTimeout = requestTimeout
	SmallRequest   = smallRequest
	StatusTimeout  = statusTimeout
)

func (s *Service) Gets() *Lane    { return s.gets }
func (s *Service) Large() *Lane   { return s.large }
func (s *Service) Queries() *Lane { return s.queries }
func (s *Service) Reads() *Lane   { return s.reads }

// Wait counts n requests as waiting for their Lapse-Min-Seq.
func (s *Service) Wait(n int64) { s.waiting.Add(n) }

func (s *Service) DropSubscriptions(reconnects uint64) { s.dropSubscriptions(reconnects) }

func (l *Lane) Len() int { return l.len() }

// Put queues work for a client, whose inbox is to.
func (l *Lane) Put(s *Service, to string, do func()) {
	l.put(&Request{Service: s, to: to, from: senderOf(&nats.Msg{Reply: to})}, do)
}

// ReplyDocument replies to a document.get.
func (s *Service) ReplyDocument(to string, live answer.Live, before uint64) {
	(&Request{Service: s, op: "document.get", to: to}).replyDocument(live, before)
}
