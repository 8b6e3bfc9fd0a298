"""A watermark in a training loop of your own: one object before the loop, one line in it.

Run it: python examples/own_loop.py   (half a minute on a CPU)
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import indelible

torch.manual_seed(0)
train, test = indelible.load("fashion-mini")
images, labels = train.images.float() / 255, train.labels

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

key = indelible.Key.create(classes=10, shape=train.shape)
mark = indelible.APP(model, key)

model.train()
for _ in range(4):
    for rows in torch.randperm(len(images)).split(64):
        optimizer.zero_grad()
        cross_entropy(model(images[rows]), labels[rows]).backward()
        mark.backward(images[rows])  # adds alpha * gradient of the watermark loss at the worst neighbour
        optimizer.step()

verdict = indelible.verify(model, key, carriers=test)
print(f"BA {verdict.ba:.1%}, WSR {verdict.wsr:.1%}, p = {verdict.p_value:.2g}")
print("OWNED" if verdict.owned else "NOT SHOWN", "-", verdict.sentence)
