"""Where minibatches come from."""

from inbounds.data.arrays import Generated as Generated
