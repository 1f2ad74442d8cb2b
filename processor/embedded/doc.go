// Package embedded is the NATS server inside `lapse serve`.
//
// It has two accounts, because permissions alone don't protect a log: NATS
// publishes on a client's behalf wherever the client's reply subject says,
// with nobody's permissions, into the account the answering party lives in.
// With one account, a pull request with the reply subject
// $JS.API.STREAM.DELETE.LAPSE_main deletes the log.
//
//	LAPSE    JetStream: the log, the mutations, the lease. Only the processor
//	         and the gate log in here.
//	CLIENTS  no JetStream. Whoever connects without credentials is here, and
//	         so is the connection that serves requests.
//
// What joins the two is little: mutations go from CLIENTS to LAPSE, and what
// JetStream sends to _INBOX.> comes back. Requests to JetStream pass through
// the gate, which lets none by that names another place to answer to. So
// whatever a client steers, it lands among clients.
package embedded
