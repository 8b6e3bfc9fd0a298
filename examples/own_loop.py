"""A watermark in a training loop of your own: one object before the loop, one line in it.

Run it: python examples/own_loop.py   (seconds on a CPU)
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import indelible

torch.manual_seed(0)
train, test = indelible.load("fashion-mini")
train, test = train.subset(torch.arange(1500)), test.subset(torch.arange(600))
images, labels = train.images.float() / 255, train.labels

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

key = indelible.Key.create(kind="noise", classes=10, shape=train.shape)
# The paper's alpha of 0.01 is for 31,200 steps; these few need more.
mark = indelible.APP(model, key, train, alpha=0.3, rows=32, clean_rows=32, fraction=0.1, augmentation="none")

model.train()
for _ in range(3):
    for rows in torch.randperm(len(images)).split(64):
        optimizer.zero_grad()
        cross_entropy(model(images[rows]), labels[rows]).backward()
        mark.backward(images[rows])  # adds alpha * gradient of the watermark loss at the worst neighbour
        optimizer.step()

verdict = indelible.verify(model, key, carriers=test)
print(f"BA {verdict.ba:.1%}, WSR {verdict.wsr:.1%}, decoys {verdict.decoy_rate:.1%}, p = {verdict.p_value:.2g}")
print("OWNED" if verdict.owned else "NOT SHOWN", "-", verdict.sentence)
