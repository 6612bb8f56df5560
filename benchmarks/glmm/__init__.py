"""Does SGLD with smooth maps of variances diverge on generalised linear mixed models? A thousand chains say so, or not."""
