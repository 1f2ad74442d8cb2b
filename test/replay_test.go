package test

import ()
